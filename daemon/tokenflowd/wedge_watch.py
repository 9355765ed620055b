"""Gives a wedged engine up after a while, where the operator has asked for that: it then counts as failed."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from tokenflow.wire import EngineState

log = structlog.get_logger()
_LOOK_S = 1.0


class WedgePatience:
    """How long the engine has been wedged without a break. Pure: the time is an argument."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since_s: float | None = None

    def is_over(self, state: EngineState, now_s: float) -> bool:
        """True once `limit_s` have passed in which every look found it wedged."""
        if state is not EngineState.WEDGED:
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= self._limit_s


async def watch(
    limit_s: Callable[[], float], judge: Callable[[float], EngineState], give_up: Callable[[str], Awaitable[None]]
) -> None:
    """Until it is cancelled. `limit_s` 0: never; it is asked at each look, so that a reload counts."""
    patience, limit = WedgePatience(limit_s()), limit_s()
    while True:
        await asyncio.sleep(_LOOK_S)
        if limit_s() != limit:
            patience, limit = WedgePatience(limit_s()), limit_s()
        now_s = time.monotonic()
        if limit and patience.is_over(judge(now_s), now_s):
            log.warning("engine_given_up", wedged_s=limit)
            await give_up(f"it was wedged for {limit:g} s and has been ended")
            patience = WedgePatience(limit)
