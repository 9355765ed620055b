"""NDJSON: one document a line, for as long as the client listens.

Each watcher builds the latest document when its own turn comes and waits for its own socket only. Nothing is queued,
so a slow watcher skips what it missed and holds nobody up.
"""

from collections.abc import AsyncIterable, Callable
from contextlib import suppress

from aiohttp import web

from tokenflow.wire import Document
from tokenflowd.changes import Changes
from tokenflowd.replies import encode


async def watch(
    request: web.Request, make: Callable[[], Document], interval_s: float, changes: Changes
) -> web.StreamResponse:
    """Every `interval_s`, and at once when the engine's state or an operation changes."""
    response = await _open(request)
    with suppress(ConnectionError):  # the client has left
        while not changes.is_closed:
            await response.write(encode(make()) + b"\n")
            await changes.wait(interval_s)
    return response


async def send_lines(request: web.Request, lines: AsyncIterable[bytes]) -> web.StreamResponse:
    response = await _open(request)
    with suppress(ConnectionError):
        async for line in lines:
            await response.write(line + b"\n")
    return response


async def _open(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
    await response.prepare(request)
    return response
