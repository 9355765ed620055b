"""A level-triggered signal: waiters wake on any change and read the latest state themselves."""

import asyncio


class Changes:
    """Many waiters, no queue: a slow waiter misses intermediate changes and never holds anybody up."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.is_closed = False
        self.count = 0  # of changes so far

    def notify(self) -> None:
        """Wakes everybody who waits now."""
        self.count += 1
        event, self._event = self._event, asyncio.Event()
        event.set()

    def close(self) -> None:
        """Wakes everybody, now and from now on: the daemon ends."""
        self.is_closed = True
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        """True on a change, False when `timeout_s` has passed without one."""
        try:
            await asyncio.wait_for(self._event.wait(), timeout_s)
        except TimeoutError:
            return False
        return True
