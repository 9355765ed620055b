"""Whom a log line is about: `uid` (who asks), `rid` (the request), `op` (the operation), bound to the task that logs.

A task inherits what its maker was bound to, so an operation's lines carry the uid of who began it.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

import structlog

ResultT = TypeVar("ResultT")


def bind(*, uid: int | None = None, rid: str | None = None, op: str | None = None) -> None:
    """For all that this task logs from now on, and the tasks that it makes. None: as it was."""
    given = {"uid": uid, "rid": rid, "op": op}
    structlog.contextvars.bind_contextvars(**{key: value for key, value in given.items() if value is not None})


def detached(work: Coroutine[Any, Any, ResultT]) -> "asyncio.Task[ResultT]":
    """A task that outlives what it is made by: a crash days later is not the work of who started the engine."""
    return asyncio.create_task(work, context=Context())
