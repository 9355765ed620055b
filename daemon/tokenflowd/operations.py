"""Long actions: one at a time, each with its progress, the last few kept to be read again."""

import asyncio
import secrets
from collections import OrderedDict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from tokenflow.errors import NotFoundError, TokenFlowError
from tokenflow.wire import OperationDocument, OperationState
from tokenflowd.changes import Changes

KEPT_OPERATIONS = 64


class OperationKind(StrEnum):
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    SHUTDOWN = "shutdown"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Operation:
    """One action under way or done."""

    def __init__(self, kind: OperationKind, started_by: str | None, changes: Changes) -> None:
        self.id = secrets.token_hex(4)
        self.kind = kind
        self.state = OperationState.RUNNING
        self.progress: str | None = None
        self.progress_ratio: float | None = None
        self.error: TokenFlowError | None = None
        self.result: dict[str, Any] | None = None
        self.was_seen_ended = asyncio.Event()
        self.started_by = started_by
        self._started_at = _now()
        self._finished_at: str | None = None
        self._changes = changes

    @property
    def is_running(self) -> bool:
        return self.state is OperationState.RUNNING

    def report(self, text: str, ratio: float | None = None) -> None:
        if self.is_running and (text, ratio) != (self.progress, self.progress_ratio):
            self.progress, self.progress_ratio = text, ratio
            self._changes.notify()

    def finish(self, **result: Any) -> None:
        self._end(OperationState.DONE)
        self.result = result
        self.progress_ratio = 1.0

    def fail(self, error: TokenFlowError) -> None:
        self._end(OperationState.FAILED)
        self.error = error

    def _end(self, state: OperationState) -> None:
        assert self.is_running, f"operation {self.id} ended twice"
        self.state = state
        self._finished_at = _now()
        self._changes.notify()

    async def wait_for_news(self, limit_s: float) -> None:
        """Returns when it has ended, when its progress has changed, or after `limit_s`."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + limit_s
        seen = (self.state, self.progress, self.progress_ratio)
        while self.is_running and not self._changes.is_closed and (remaining_s := deadline_s - loop.time()) > 0:
            await self._changes.wait(remaining_s)
            if (self.state, self.progress, self.progress_ratio) != seen:
                return

    def document(self) -> OperationDocument:
        """To be sent to a client: marks an ended operation as seen."""
        if not self.is_running:
            self.was_seen_ended.set()
        return OperationDocument(
            id=self.id,
            kind=self.kind.value,
            state=self.state,
            progress=self.progress,
            progress_ratio=self.progress_ratio,
            started_by=self.started_by,
            started_at=self._started_at,
            finished_at=self._finished_at,
            error=self.error.body() if self.error else None,
            result=self.result,
        )


class Operations:
    """Finds operations by id; old ones are forgotten."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._all: OrderedDict[str, Operation] = OrderedDict()

    def begin(self, kind: OperationKind, started_by: str | None) -> Operation:
        operation = Operation(kind, started_by, self._changes)
        self._all[operation.id] = operation
        while len(self._all) > KEPT_OPERATIONS:
            self._all.popitem(last=False)
        return operation

    def find(self, operation_id: str) -> Operation:
        """Raises NotFoundError."""
        operation = self._all.get(operation_id)
        if operation is None:
            raise NotFoundError(f"there is no operation {operation_id!r}", hint="tfctl status")
        return operation
