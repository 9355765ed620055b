"""Makes docs/img/view-*.svg: `python tools/view_pictures.py [RECORDING]`.

Screens of the live view, from a recording that `tfctl top --record` made beside a real engine. Nothing is made up.
"""

import asyncio
import sys
from pathlib import Path

from tokenflow_tui.app import LiveView
from tokenflow_tui.recording import read
from tokenflow_tui.shot import plain_svg

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "img"
RECORDING = ROOT / "tests" / "tui" / "data" / "burst.tfrec"  # how it was made: the README beside it
# file → (seconds after the first moment, size, keys)
PICTURES = {
    "view-burst": (21.0, (120, 30), ""),
    "view-detail": (41.0, (140, 40), "slash 4 b 7 b 5 enter enter"),
    "view-tuning": (26.0, (110, 40), "t right right right right right"),
}


async def picture(recording_path: Path, at_s: float, size: tuple[int, int], keys: str) -> str:
    """The screen as SVG, once nothing on it changes any more."""
    recording = read(recording_path)
    app = LiveView(None, recording=recording)
    assert app.scene.player is not None
    app.scene.player.is_playing = False
    app.scene.clock.at_s = recording.moments[0].at_s + at_s
    async with app.run_test(size=size) as pilot:
        await pilot.press(*keys.split())
        await app.workers.wait_for_complete()
        before = None
        while before != (before := app.export_screenshot()):
            await pilot.pause(0.5)
    assert before is not None
    return plain_svg(before)


def main() -> int:
    recording = Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDING
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (at_s, size, keys) in PICTURES.items():
        path = FOLDER / f"{name}.svg"
        path.write_text(asyncio.run(picture(recording, at_s, size, keys)), encoding="utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
