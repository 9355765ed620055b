"""What is: version, status, requests."""

from aiohttp import web

from tokenflowd import streaming
from tokenflowd.context import CONTEXT
from tokenflowd.queries import RequestQuery, seconds
from tokenflowd.replies import answer

_WATCH_LEAST_S, _WATCH_MOST_S = 0.1, 3600.0


async def get_version(request: web.Request) -> web.StreamResponse:
    return answer(request.app[CONTEXT].snapshots.version())


async def get_status(request: web.Request) -> web.StreamResponse:
    context = request.app[CONTEXT]
    interval_s = seconds(request.query, "watch", _WATCH_LEAST_S, _WATCH_MOST_S)
    if interval_s is None:
        return answer(context.snapshots.status())
    return await streaming.watch(request, context.lines, "status", context.snapshots.status, interval_s)


async def get_requests(request: web.Request) -> web.StreamResponse:
    context = request.app[CONTEXT]
    query = RequestQuery.parse(request.query)
    interval_s = seconds(request.query, "watch", _WATCH_LEAST_S, _WATCH_MOST_S)
    if interval_s is None:
        return answer(context.snapshots.requests(query))
    return await streaming.watch(request, context.lines, query, lambda: context.snapshots.requests(query), interval_s)


ROUTES = [
    web.get("/v1", get_version),
    web.get("/v1/status", get_status),
    web.get("/v1/requests", get_requests),
]
