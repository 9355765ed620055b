"""Follows a long action of the daemon until it is over, telling what it is doing."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tfctl.client import Client
from tfctl.output import note
from tfctl.session import Session
from tokenflow.errors import OperationError, TimedOutError, from_body
from tokenflow.wire import OperationDocument, OperationState

_POLL_S = 1.0
_NEARLY_DONE = 0.999
_FLOOR_S = 0.1  # between two questions, should the daemon not wait as asked


class Reporter(Protocol):
    """Shows where an operation stands."""

    def __call__(self, text: str, ratio: float | None) -> None: ...


@contextmanager
def reporter(session: Session) -> Iterator[Reporter]:
    """A bar on a terminal, one line per change elsewhere, nothing with --json or --quiet. All of it on stderr."""
    if not session.is_chatty:
        yield lambda text, ratio: None
    elif sys.stderr is not None and sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _Lines()


class _Lines:
    """One line whenever the text changes, not for every per cent."""

    def __init__(self) -> None:
        self._last: str | None = None

    def __call__(self, text: str, ratio: float | None) -> None:
        if text != self._last:
            self._last = text
            note(text)


@contextmanager
def _bar() -> Iterator[Reporter]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), BarColumn(bar_width=24), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        bar = progress.tasks[0]

        def show(text: str, ratio: float | None) -> None:
            # A complete task stops its clock and spinner for good, and a step that is complete is not the last one.
            done = 0.0 if ratio is None else min(ratio, _NEARLY_DONE)
            bar.total = None if ratio is None else 1.0  # update() takes None for "as before"
            progress.update(task, description=text, completed=done, refresh=True)

        yield show


def follow(client: Client, operation: OperationDocument, report: Reporter, limit_s: float | None) -> OperationDocument:
    """Returns the operation once it is done. Raises its error if it failed, TimedOutError after `limit_s`."""
    until_s = None if limit_s is None else time.monotonic() + limit_s
    while operation.state is OperationState.RUNNING:
        if operation.progress:
            report(operation.progress, operation.progress_ratio)
        left_s = _POLL_S if until_s is None else min(_POLL_S, until_s - time.monotonic())
        if left_s <= 0:
            raise TimedOutError(
                f"{operation.kind} is still under way after {limit_s:g} s; it goes on",
                hint="watch it: tfctl status --watch; end it: tfctl stop",
            )
        asked_s = time.monotonic()
        operation = client.get(f"/v1/operations/{operation.id}", OperationDocument, {"wait": left_s}, extra_s=left_s)
        time.sleep(max(0.0, min(_FLOOR_S, left_s) - (time.monotonic() - asked_s)))
    if operation.state is OperationState.FAILED:
        if operation.error is None:
            raise OperationError(f"{operation.kind} failed", hint="see why: tfctl logs")
        raise from_body(operation.error)
    return operation
