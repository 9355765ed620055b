"""The policy's mode: read from the telemetry, set through the scheduler's link."""

import time

from aiohttp import web

from tokenflow import link
from tokenflow.wire import ModeRequest
from tokenflowd import commands
from tokenflowd.context import CONTEXT
from tokenflowd.guard import caller, note
from tokenflowd.replies import answer, read_body


async def get_mode(request: web.Request) -> web.StreamResponse:
    return answer(request.app[CONTEXT].snapshots.mode())


async def put_mode(request: web.Request) -> web.StreamResponse:
    context = request.app[CONTEXT]
    wish = await read_body(request, ModeRequest)
    engine = commands.engine_of(context, "so there is no mode to set")
    assert engine is not None
    who = caller()
    before = context.snapshots.mode().mode
    note("mode", before, wish.mode)
    command = link.SetMode(mode=wish.mode, deadline_s=time.monotonic() + commands.LIMIT_S, who=who)
    link.checked(await engine.command(command))
    context.tuner.effects.note({"mode": before}, {"mode": wish.mode.value}, who)
    context.changes.notify()
    return answer(context.snapshots.mode())


ROUTES = [web.get("/v1/mode", get_mode), web.put("/v1/mode", put_mode)]
