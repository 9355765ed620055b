"""NDJSON: one document a line, for as long as the client listens.

Each watcher takes the latest document when its own turn comes and waits for its own socket only. Nothing is queued,
so a slow watcher skips what it missed and holds nobody up. Watchers of the same thing share a document for a moment:
fifty of them cost little more than one.
"""

import time
from collections.abc import AsyncIterable, Callable, Hashable
from contextlib import suppress

from aiohttp import web

from tokenflow.wire import Document
from tokenflowd.changes import Changes
from tokenflowd.replies import encode


class SharedLines:
    """The lines made lately, by what they show. One is old after `FRESH_S`, and at once when something changes."""

    FRESH_S = 0.05

    def __init__(self, changes: Changes) -> None:
        self.changes = changes
        self._made: dict[Hashable, tuple[float, int, bytes]] = {}

    def line(self, key: Hashable, make: Callable[[], Document]) -> bytes:
        now_s = time.monotonic()
        found = self._made.get(key)
        if found is not None and now_s - found[0] < self.FRESH_S and found[1] == self.changes.count:
            return found[2]
        self._made = {other: kept for other, kept in self._made.items() if now_s - kept[0] < self.FRESH_S}
        line = encode(make()) + b"\n"
        self._made[key] = (now_s, self.changes.count, line)
        return line


async def watch(
    request: web.Request, lines: SharedLines, key: Hashable, make: Callable[[], Document], interval_s: float
) -> web.StreamResponse:
    """Every `interval_s`, and at once when the engine's state or an operation changes. `key`: what `make` shows."""
    response, changes = await _open(request), lines.changes
    with suppress(ConnectionError):  # the client has left
        while not changes.is_closed:
            await response.write(lines.line(key, make))
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
