"""Alarms leave a line when they are raised and one when they have gone, however long they stand."""

import asyncio

from daemon_rig import run_daemon, write_profile
from structlog.testing import capture_logs

from tokenflow.wire import Alarm, AlarmKind
from tokenflowd import alarm_log
from tokenflowd.alarm_log import AlarmLog


def alarm(kind: AlarmKind, message: str) -> Alarm:
    return Alarm(kind=kind, message=message, hint="tfctl status")


def test_one_line_when_it_is_raised_and_one_when_it_has_gone():
    book = AlarmLog()
    with capture_logs() as lines:
        book.take([], 0.0)
        book.take([alarm(AlarmKind.STARVATION, "for 60 s")], 2.0)
        book.take([alarm(AlarmKind.STARVATION, "for 62 s"), alarm(AlarmKind.ENGINE_WEDGED, "no step")], 4.0)
        book.take([alarm(AlarmKind.ENGINE_WEDGED, "no step")], 10.0)
        book.take([alarm(AlarmKind.STARVATION, "again"), alarm(AlarmKind.ENGINE_WEDGED, "no step")], 12.0)
    assert [(line["event"], line["kind"], line["log_level"]) for line in lines] == [
        ("alarm_raised", "starvation", "warning"),
        ("alarm_raised", "engine_wedged", "error"),
        ("alarm_gone", "starvation", "info"),
        ("alarm_raised", "starvation", "warning"),
    ]
    assert (lines[0]["message"], lines[2]["lasted_s"]) == ("for 60 s", 8.0)


async def test_the_daemon_writes_them(home, monkeypatch):
    monkeypatch.setattr(alarm_log, "LOOK_S", 0.05)
    write_profile("ill", "disabled")
    with capture_logs() as lines:
        async with run_daemon() as rig, asyncio.timeout(20):
            await rig.client.start("ill")
            while not [line for line in lines if line["event"] == "alarm_raised"]:
                await asyncio.sleep(0.02)
            await rig.client.stop()
            while not [line for line in lines if line["event"] == "alarm_gone"]:
                await asyncio.sleep(0.02)
    told = [(line["event"], line["kind"]) for line in lines if line["event"].startswith("alarm_")]
    assert ("alarm_raised", "plugin_disabled") in told
    assert told.index(("alarm_raised", "plugin_disabled")) < told.index(("alarm_gone", "plugin_disabled"))
