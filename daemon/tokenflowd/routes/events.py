"""What the policy and the operators did."""

from collections.abc import AsyncIterator, Iterable

import msgspec
from aiohttp import web

from tokenflow.events import EventKind, EventRow
from tokenflowd import streaming
from tokenflowd.context import CONTEXT
from tokenflowd.queries import chosen, flag, whole_number

_DEFAULT_EVENTS = 100


async def get_events(request: web.Request) -> web.StreamResponse:
    """The last `n` (of the kinds in `kind=A,B`), then with `follow=1` each new one; over restarts of the engine too."""
    book = request.app[CONTEXT].events
    count = whole_number(request.query, "n", _DEFAULT_EVENTS) or 0
    kinds = _kinds(request.query.get("kind", ""))
    rows = book.follow(count, kinds) if flag(request.query, "follow") else _each(book.last(count, kinds))
    return await streaming.send_lines(request, _encoded(rows))


def _kinds(text: str) -> frozenset[EventKind] | None:
    return chosen(text, EventKind, "kind of event", hint="tfctl events --kind preempted", field="kind")


async def _each(rows: Iterable[EventRow]) -> AsyncIterator[EventRow]:
    for row in rows:
        yield row


async def _encoded(rows: AsyncIterator[EventRow]) -> AsyncIterator[bytes]:
    async for row in rows:
        yield msgspec.json.encode(row)


ROUTES = [web.get("/v1/events", get_events)]
