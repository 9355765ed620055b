"""Starting a failed engine again: with growing waits, up to a limit, and until somebody asks for something else."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from tokenflow.errors import TokenFlowError
from tokenflow.wire import EngineState
from tokenflowd import logcontext, plan
from tokenflowd.lifecycle import EngineLifecycle
from tokenflowd.operations import Operation
from tokenflowd.plan import EnginePlan
from tokenflowd.restarts import RestartBook

_LOOK_S = 60.0


class Revival:
    """`start` starts an engine and returns what it has failed with. The limit 0 of `book` means never."""

    def __init__(
        self,
        book: RestartBook,
        lifecycle: EngineLifecycle,
        start: Callable[[EnginePlan], Awaitable[TokenFlowError | None]],
    ) -> None:
        self.book = book
        self._lifecycle = lifecycle
        self._start = start
        self._task: asyncio.Task[None] | None = None
        self._promised: tuple[str, str] | None = None  # what is told while it waits, and what remains true without it

    @property
    def count(self) -> int:
        """How often an engine was started again lately, without anybody asking."""
        return self.book.count(time.monotonic())

    def begin(self, failed: EnginePlan, reason: str) -> None:
        if self.book.limits.count:
            self._task = logcontext.detached(self._revive(failed, reason))

    def begin_if_failed(self, operation: Operation, wanted: EnginePlan | None) -> None:
        """Of a start that nobody watches."""
        if self.book.limits.count and wanted is not None:
            self._task = logcontext.detached(self._follow(operation, wanted))

    def forget(self) -> None:
        """Somebody has asked for something else. A start that is under way is theirs to interrupt."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._promised is not None:
            told, plain = self._promised
            self._promised = None
            if self._lifecycle.reason == told:
                self._lifecycle.set_phase(EngineState.FAILED, plain)

    async def _follow(self, operation: Operation, wanted: EnginePlan) -> None:
        while operation.is_running:
            await operation.wait_for_news(_LOOK_S)
        if operation.error is not None:
            await self._revive(self._lifecycle.plan or wanted, operation.error.message)

    async def _revive(self, failed: EnginePlan, reason: str) -> None:
        """Starts it as it ran, on the same port."""
        limits = self.book.limits
        if not failed.is_whole:
            told = f"{reason}; not started again, since its profile was not readable when it was taken over"
            self._lifecycle.set_phase(EngineState.FAILED, told)
            return
        while (wait_s := self.book.wait_s(time.monotonic())) is not None:
            told = f"{reason}; it is started again in {wait_s:g} s ({self.count + 1} of {limits.count})"
            self._promised = (told, reason)
            self._lifecycle.set_phase(EngineState.FAILED, told)
            await asyncio.sleep(wait_s)
            self._promised = None
            self.book.begin(time.monotonic())
            error = await self._start(plan.make(failed.profile, list(failed.extra_arguments), port=failed.port))
            if error is None:
                return
            reason = error.message
        told = f"{reason}; given up after {limits.count} restarts in {limits.window_s:g} s"
        self._lifecycle.set_phase(EngineState.FAILED, told)
