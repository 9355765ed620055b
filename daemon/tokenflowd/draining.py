"""Letting open streams finish before the engine ends."""

import asyncio
import math
import time

from tokenflow import link
from tokenflowd.engine_process import EngineProcess
from tokenflowd.preflight import Report

_TURN_S = 0.25
_ASK_LIMIT_S = 2.0
_CUT_LIMIT_S = 5.0
CUT_MESSAGE = "the server is being stopped by its operator"


class Drain:
    """Closes admission, waits for open streams up to a deadline that may be brought forward, cuts the rest."""

    def __init__(self, limit_s: float) -> None:
        self._deadline_s = time.monotonic() + limit_s
        self._news = asyncio.Event()

    def shorten(self, limit_s: float) -> None:
        """A later wish to wait for less counts, one to wait for longer does not."""
        self._deadline_s = min(self._deadline_s, time.monotonic() + limit_s)
        self._news.set()

    @property
    def until_s(self) -> float:
        """CLOCK_MONOTONIC."""
        return self._deadline_s

    @property
    def remaining_s(self) -> float:
        return max(0.0, self._deadline_s - time.monotonic())

    async def run(self, engine: EngineProcess, report: Report) -> None:
        """Returns early when the engine dies. An engine without our plugin has nobody to ask: it is ended as it is.

        One with it that does not answer for a moment still has its streams: they are waited for, and asked for again.
        """
        has_plugin = engine.has_plugin or engine.frontend_reply is not None
        reply = await engine.ask_frontend(link.CloseAdmission(), _ASK_LIMIT_S)
        while _may_have_streams(reply, has_plugin) and self.remaining_s > 0 and not engine.death.done():
            report(f"{_waiting(reply)}, {math.ceil(self.remaining_s)} s at most", None)
            await self._pause(min(_TURN_S, self.remaining_s))
            # Asked in the same words: where the first was not heard, admission is closed by the next.
            reply = await engine.ask_frontend(link.CloseAdmission(), _ASK_LIMIT_S)
        if reply is not None and reply.open_stream_count and not engine.death.done():
            report(f"cutting {reply.open_stream_count} open streams", None)
            await engine.ask_frontend(link.CutStreams(message=CUT_MESSAGE), _CUT_LIMIT_S)

    async def _pause(self, limit_s: float) -> None:
        self._news.clear()
        try:
            await asyncio.wait_for(self._news.wait(), limit_s)
        except TimeoutError:
            pass


def _may_have_streams(reply: link.Reply | None, has_plugin: bool) -> bool:
    return has_plugin if reply is None else bool(reply.open_stream_count)


def _waiting(reply: link.Reply | None) -> str:
    if reply is None:
        return "the engine's HTTP process does not answer; waiting for its streams to finish"
    count = reply.open_stream_count
    return f"waiting for {'1 stream' if count == 1 else f'{count} streams'} to finish"
