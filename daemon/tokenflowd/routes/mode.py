"""The policy's mode: read from the telemetry, set through the scheduler's link."""

import time

from aiohttp import web

from tokenflow import link
from tokenflow.errors import ConflictError, from_body
from tokenflow.wire import ErrorBody, ModeRequest
from tokenflowd.context import CONTEXT
from tokenflowd.link import COMMAND_LIMIT_S
from tokenflowd.replies import answer, caller, log, read_body


async def get_mode(request: web.Request) -> web.StreamResponse:
    return answer(request.app[CONTEXT].snapshots.mode())


async def put_mode(request: web.Request) -> web.StreamResponse:
    context = request.app[CONTEXT]
    wish = await read_body(request, ModeRequest)
    engine = context.supervisor.lifecycle.engine
    if engine is None or engine.serving_since_s is None:
        raise ConflictError("no engine is serving, so there is no mode to set", hint="tfctl start")
    reply = await engine.set_mode(link.SetMode(mode=wish.mode, deadline_s=time.monotonic() + COMMAND_LIMIT_S))
    if reply.error_code is not None:
        message = reply.error_message or f"the engine refused the mode {wish.mode.value}"
        raise from_body(ErrorBody(code=reply.error_code, message=message, hint="tfctl mode observe", field="mode"))
    log.info("mode_set", mode=wish.mode.value, revision=reply.revision, by=caller(request))
    context.changes.notify()
    return answer(context.snapshots.mode())


ROUTES = [web.get("/v1/mode", get_mode), web.put("/v1/mode", put_mode)]
