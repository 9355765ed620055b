"""When and how the daemon ends by itself."""

import asyncio

import structlog

from tokenflowd.operations import Operation

log = structlog.get_logger()


class Ending:
    """The wish to end. An operation that brings it about is read by its client first, for up to `farewell_s`."""

    def __init__(self, farewell_s: float, *, on_demand: bool) -> None:
        self.requested = asyncio.Event()
        self.on_demand = on_demand
        self.farewell_s = farewell_s
        self._farewell: asyncio.Task[None] | None = None

    def request(self, why: str) -> None:
        if not self.requested.is_set():
            log.info("daemon_ends", why=why)
            self.requested.set()

    def follow(self, operation: Operation) -> None:
        """The daemon ends once `operation` has ended well and its client knows."""
        if self._farewell is None or self._farewell.done():
            self._farewell = asyncio.create_task(self._say_farewell(operation))

    def forget(self) -> None:
        """Something new has been asked for in the meantime."""
        if self._farewell is not None:
            self._farewell.cancel()
            self._farewell = None

    async def _say_farewell(self, operation: Operation) -> None:
        while operation.is_running:
            await operation.wait_for_news(60.0)
        if operation.error is not None:
            return
        try:
            await asyncio.wait_for(operation.was_seen_ended.wait(), self.farewell_s)
        except TimeoutError:
            pass
        self.request(f"after {operation.kind.value} {operation.id}")
