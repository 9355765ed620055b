"""The operator's hand on one request."""

import time

from aiohttp import web

from tokenflow import link
from tokenflow.tuning import HoldDocument
from tokenflowd import commands
from tokenflowd.context import CONTEXT
from tokenflowd.guard import caller, note
from tokenflowd.replies import answer


async def pause(request: web.Request) -> web.StreamResponse:
    return await _carry_out(request, is_held=True)


async def resume(request: web.Request) -> web.StreamResponse:
    return await _carry_out(request, is_held=False)


async def _carry_out(request: web.Request, *, is_held: bool) -> web.StreamResponse:
    context, rid, who = request.app[CONTEXT], request.match_info["rid"], caller()
    note(rid, new="held" if is_held else "unheld")
    engine = commands.engine_of(context, "so there is no request to pause or resume")
    assert engine is not None
    deadline_s = time.monotonic() + commands.LIMIT_S
    kind = link.PauseRequest if is_held else link.ResumeRequest
    reply = link.checked(await engine.command(kind(rid=rid, deadline_s=deadline_s, who=who)))
    assert reply.held_state is not None, "the scheduler names the state in which it took the command"
    context.changes.notify()
    plan = context.supervisor.lifecycle.plan
    profile = plan.profile.name if plan is not None else None
    return answer(HoldDocument(profile=profile, rid=rid, is_held=is_held, state=reply.held_state))


ROUTES = [
    web.post("/v1/requests/{rid}/pause", pause),
    web.post("/v1/requests/{rid}/resume", resume),
]
