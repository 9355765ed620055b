"""Makes docs/img/*.svg: `python tools/view_pictures.py [--recording FILE] [--output FOLDER]`.

Screens of the live view, and what `tfctl status` and `tfctl ps` print, from a recording that `tfctl top --record` made
beside a real engine. Nothing is made up.
"""

import argparse
import asyncio
import io
import os
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tfctl.output import Look
from tfctl.views.requests import render_requests
from tfctl.views.status import render_status
from tokenflow_tui import scene
from tokenflow_tui.app import LiveView
from tokenflow_tui.recording import read
from tokenflow_tui.shot import plain_svg

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "img"
RECORDING = ROOT / "tests" / "tui" / "data" / "burst.tfrec"  # how it was made: the README beside it
SURPLUS_S = 16.2  # one stream has been paused for another's first token
PRINTED = "live"
# file → (seconds after the first moment, size, keys)
PICTURES = {
    "view-burst": (SURPLUS_S, (120, 30), ""),
    "view-80x24": (SURPLUS_S, (80, 24), ""),
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


def printed(recording_path: Path, at_s: float, width: int = 100) -> str:
    """What two commands print on a terminal of `width` columns, as SVG."""
    moments = read(recording_path).moments
    moment = [packed for packed in moments if packed.at_s <= moments[0].at_s + at_s][-1].moment()
    assert moment.status is not None
    assert moment.requests is not None
    look = Look(colour=True, width=width)
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    for command, lines in (
        ("tfctl status", render_status(moment.status, look)),
        ("tfctl ps", render_requests(moment.requests.requests, look)),
    ):
        console.print(Text.assemble(("$ ", "dim"), (command, "bold")))
        console.print(Text.from_ansi("\n".join(lines)), no_wrap=True, crop=True)
        console.print()
    return plain_svg(console.export_svg(title="TokenFlow", unique_id="live"))


def made(recording_path: Path, name: str) -> str:
    """The picture of that name, the same on every machine."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    os.environ.pop("NO_COLOR", None)
    scene._REBUILD_LIMIT_S = float("inf")  # what a slow machine would leave out
    if name == PRINTED:
        return printed(recording_path, SURPLUS_S)
    return asyncio.run(picture(recording_path, *PICTURES[name]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recording", type=Path, default=RECORDING)
    parser.add_argument("--output", type=Path, default=FOLDER)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for name in (PRINTED, *PICTURES):
        path = options.output / f"{name}.svg"
        path.write_text(made(options.recording, name), encoding="utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
