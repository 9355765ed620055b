"""Alarms in the daemon's log, as they are raised and as they go: for whoever reads the journal afterwards."""

import asyncio
import time
from collections.abc import Callable, Sequence

import structlog

from tokenflow.wire import Alarm, AlarmKind, StatusDocument

log = structlog.get_logger()
LOOK_S = 2.0
_GRAVE = (AlarmKind.ENGINE_FAILED, AlarmKind.ENGINE_WEDGED)


class AlarmLog:
    """One line when a kind is raised and one when it has gone; what its message says meanwhile is the status's."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def take(self, alarms: Sequence[Alarm], now_s: float) -> None:
        """`alarms`: all that there are at `now_s` (CLOCK_MONOTONIC)."""
        standing = {alarm.kind for alarm in alarms}
        for alarm in alarms:
            if alarm.kind not in self._since_s:
                self._since_s[alarm.kind] = now_s
                tell = log.error if alarm.kind in _GRAVE else log.warning
                tell("alarm_raised", kind=str(alarm.kind), message=alarm.message, hint=alarm.hint)
        for kind in self._since_s.keys() - standing:
            log.info("alarm_gone", kind=kind, lasted_s=round(now_s - self._since_s.pop(kind), 1))


async def run(status: Callable[[], StatusDocument]) -> None:
    """Until it is cancelled."""
    alarm_log, is_told = AlarmLog(), False
    while True:
        try:
            alarm_log.take(status().alarms, time.monotonic())
        except Exception:  # a status that cannot be made: the next one may be
            if not is_told:
                is_told = True
                log.exception("alarms_unknown")
        await asyncio.sleep(LOOK_S)
