"""The engine's log, line by line."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
from aiohttp import web

from tokenflowd import logfile, streaming
from tokenflowd.context import CONTEXT
from tokenflowd.queries import flag, whole_number

_DEFAULT_LINES = 100
_MAX_LINES = 100_000


async def get_logs(request: web.Request) -> web.StreamResponse:
    """`n` lines from the end, then with `follow=1` each new one; goes over to the next log when the engine restarts."""
    context = request.app[CONTEXT]
    count = min(whole_number(request.query, "n", _DEFAULT_LINES) or 0, _MAX_LINES)
    path = context.paths.engine_log
    if flag(request.query, "follow"):
        lines = logfile.follow(path, count, lambda: context.changes.is_closed)
    else:
        lines = _each(await asyncio.to_thread(logfile.last_lines, path, count))
    return await streaming.send_lines(request, _encoded(lines))


async def _each(lines: list[str]) -> AsyncIterator[str]:
    for line in lines:
        yield line


async def _encoded(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for line in lines:
        yield msgspec.json.encode({"line": line})


ROUTES = [web.get("/v1/logs", get_logs)]
