"""Each screen, size and theme against its picture, on what was recorded from the real engine.

A screen that has changed on purpose: pytest tests/tui/test_snapshots.py --snapshot-update, then look at the pictures.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tfctl.documents import Effect
from tfctl.whatif import WhatIf
from tokenflow.wire import GpuInfo
from tokenflow_tui import scene
from tokenflow_tui.app import LiveView
from tokenflow_tui.moment import pack
from tokenflow_tui.recording import read

DATA = Path(__file__).parent / "data" / "burst.tfrec"
SHIFT_ENV = "TOKENFLOW_TEST_SNAPSHOT_SHIFT"  # shows another moment: the test below wants a failure
BEGIN, OVERLOAD, TUNED, HELD, EXPLAINED = 0, 36, 44, 60, 75  # moments of the recording
MAIN = (140, 40)
SMALL = (80, 24)

# The recording is of a CPU engine: these are made up, and their name says so.
MADE_GPUS = [
    GpuInfo(
        index=index,
        name="made-up GPU",
        utilization_ratio=utilization_ratio,
        memory_used_bytes=used_gib * 2**30,
        memory_total_bytes=140 * 2**30,
        temperature_c=temperature_c,
        power_w=power_w,
        throttle_reasons=reasons,
    )
    for index, utilization_ratio, used_gib, temperature_c, power_w, reasons in (
        (0, 0.97, 121, 61.0, 643.0, []),
        (1, 0.42, 139, 84.0, 301.0, ["thermal"]),
    )
]

SCREENS = {
    "main-140x40": (OVERLOAD, MAIN, "", {}),
    "main-100x30": (OVERLOAD, (100, 30), "", {}),
    "main-80x24": (OVERLOAD, SMALL, "", {}),
    "low-80x12": (OVERLOAD, (80, 12), "", {}),
    "wide-200x50": (OVERLOAD, (200, 50), "", {}),
    "ascii-80x24": (OVERLOAD, SMALL, "", {"use_ascii": True}),
    "colour-blind": (OVERLOAD, (120, 30), "", {"theme": "colour-blind"}),
    "high-contrast": (OVERLOAD, (120, 30), "", {"theme": "high-contrast"}),
    "light": (OVERLOAD, (120, 30), "", {"theme": "textual-light"}),
    "detail-140x40": (EXPLAINED, MAIN, "slash 4 b 7 b 5 enter enter", {}),
    "detail-80x24": (EXPLAINED, SMALL, "slash 4 b 7 b 5 enter enter", {}),
    "filter": (OVERLOAD, SMALL, "slash w a i t", {}),
    "sorted": (OVERLOAD, SMALL, "left left r", {}),
    "help": (OVERLOAD, (100, 50), "question_mark", {}),
    "idle": (BEGIN, SMALL, "", {}),
    "held": (HELD, (120, 36), "end", {}),
    "tuning-110x40": (TUNED, (110, 40), "t right right right", {}),
    "tuning-80x24": (TUNED, SMALL, "t right", {}),
    "no-gpu": (OVERLOAD, (120, 30), "3", {}),
    "gpus": (OVERLOAD, (140, 40), "", {"gpus": MADE_GPUS}),
    "tuning-ascii": (TUNED, (100, 34), "t down down left", {"use_ascii": True}),
}


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(scene, "_REBUILD_LIMIT_S", float("inf"))  # a slow machine must show the same
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(autouse=True)
def figures(monkeypatch):
    """A picture must not change with every change of the policy; its own figures have tests of their own."""
    made = Effect(safe_mean=2.75, pause_count=4, first_token_count=2, rescue_count=1, least_left_s=0.25, dry_count=0)
    less = msgspec.structs.replace(made, safe_mean=1.5, pause_count=2, first_token_count=1, least_left_s=1.25)
    monkeypatch.setattr(WhatIf, "effect", lambda self, tunables: made if tunables.safety_factor == 1.5 else less)


@pytest.mark.parametrize("name", SCREENS)
def test_screen(name, snap_compare):
    index, size, keys, options = SCREENS[name]
    recording = read(DATA)
    gpus = options.get("gpus")
    options = {key: value for key, value in options.items() if key != "gpus"}
    if gpus is not None:
        moment = recording.moments[index].moment()
        moment.status.gpus = gpus
        recording.moments[index] = pack(moment)
    app = LiveView(None, recording=recording, **options)
    app.scene.player.is_playing = False
    app.scene.clock.at_s = recording.moments[index + int(os.environ.get(SHIFT_ENV, "0"))].at_s

    async def settle(pilot):
        await pilot.press(*keys.split())
        await app.workers.wait_for_complete()  # the comparison of the tuning panel
        before = None
        while before != (before := app.export_screenshot()):  # layout follows what was drawn, in the next turn
            await pilot.pause(0.05)

    assert snap_compare(app, run_before=settle, terminal_size=size)


def test_a_changed_screen_fails(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--snapshot-report={tmp_path / 'report.html'}",
    ]
    done = subprocess.run(
        [*command, f"{__file__}::test_screen[main-80x24]"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, SHIFT_ENV: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "1 failed" in done.stdout
