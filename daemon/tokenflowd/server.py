"""The HTTP server on the control socket."""

import socket

from aiohttp import web

from tokenflowd import replies
from tokenflowd.context import CONTEXT, Context
from tokenflowd.metrics.endpoint import EXPORTER
from tokenflowd.routes import engine, events, hold, logs, metrics, mode, requests, state, tunables

_MAX_BODY_BYTES = 1024 * 1024
_CLOSE_LIMIT_S = 1.0


def make_app(context: Context) -> web.Application:
    app = web.Application(middlewares=[replies.errors_become_documents], client_max_size=_MAX_BODY_BYTES)
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
        make_app(context), access_log=None, handler_cancellation=True, shutdown_timeout=_CLOSE_LIMIT_S
    )
    await runner.setup()
    await web.SockSite(runner, bound).start()
    return runner
