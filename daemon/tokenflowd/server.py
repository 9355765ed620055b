"""The HTTP server on the control socket."""

import logging
import socket

from aiohttp import web

from tokenflowd import replies
from tokenflowd.connections import WatchedSite
from tokenflowd.context import CONTEXT, Context
from tokenflowd.guard import make_guard
from tokenflowd.metrics.endpoint import EXPORTER
from tokenflowd.routes import engine, events, hold, logs, metrics, mode, requests, state, tunables

_MAX_BODY_BYTES = 1024 * 1024
_CLOSE_LIMIT_S = 1.0
# aiohttp writes a traceback for each request that is no HTTP, parts of it included. What our own code raises is
# logged in `replies`.
_malformed = logging.getLogger(f"{__name__}.malformed")
_malformed.setLevel(logging.CRITICAL + 1)


def make_app(context: Context) -> web.Application:
    middlewares = [replies.errors_become_documents, make_guard(context.roles)]
    app = web.Application(middlewares=middlewares, client_max_size=_MAX_BODY_BYTES)
    app[CONTEXT] = context
    app[EXPORTER] = context.exporter
    app.on_response_prepare.append(replies.add_headers)
    for subject in (state, engine, mode, tunables, hold, requests, logs, events, metrics):
        app.add_routes(subject.ROUTES)
    return app


async def serve(context: Context, bound: socket.socket) -> web.AppRunner:
    """Answers on `bound` when this returns; `cleanup` of what is returned ends it."""
    # Without handler_cancellation a watcher whose client is gone would only be noticed at its next write.
    runner = web.AppRunner(
        make_app(context),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=_CLOSE_LIMIT_S,
        logger=_malformed,
    )
    await runner.setup()
    await WatchedSite(runner, f"unix:{bound.getsockname()}", sock=bound).start()
    return runner
