"""What is to be done with the engine, and how far it is."""

from aiohttp import web

from tokenflow.errors import ConflictError, UsageError
from tokenflow.wire import RestartRequest, StartRequest, StopRequest
from tokenflowd import logcontext
from tokenflowd.context import CONTEXT, Context
from tokenflowd.guard import caller, note, require
from tokenflowd.identity import Role
from tokenflowd.operations import Operation
from tokenflowd.queries import seconds
from tokenflowd.replies import answer, read_body

_MAX_DRAIN_S = 86_400.0
_MAX_WAIT_S = 60.0


async def start(request: web.Request) -> web.StreamResponse:
    context = request.app[CONTEXT]
    wish = await read_body(request, StartRequest)
    note("engine", _profile(context), wish.profile)
    if context.ending.requested.is_set():
        raise ConflictError("the daemon is ending", hint="tfctl start")
    operation = context.supervisor.start(wish.profile, wish.engine_args, caller())
    context.ending.forget()
    return _begun(operation)


async def stop(request: web.Request) -> web.StreamResponse:
    context = request.app[CONTEXT]
    wish = await read_body(request, StopRequest)
    note("engine and daemon" if wish.daemon else "engine", _profile(context))
    if wish.daemon:
        require(Role.ADMIN)
    operation = context.supervisor.stop(_checked_drain(wish.drain_s), caller())
    if wish.daemon or context.ending.on_demand:
        context.ending.follow(operation)
    return _begun(operation)


async def restart(request: web.Request) -> web.StreamResponse:
    context = request.app[CONTEXT]
    wish = await read_body(request, RestartRequest)
    note("engine", _profile(context), wish.profile or _profile(context))
    operation = context.supervisor.restart(wish.profile, wish.engine_args, _checked_drain(wish.drain_s), caller())
    context.ending.forget()
    return _begun(operation)


async def shutdown(request: web.Request) -> web.StreamResponse:
    """Ends the engine and then the daemon."""
    context = request.app[CONTEXT]
    note("engine and daemon", _profile(context))
    operation = context.supervisor.stop(None, caller())
    context.ending.follow(operation)
    return _begun(operation)


async def get_operation(request: web.Request) -> web.StreamResponse:
    operation = request.app[CONTEXT].operations.find(request.match_info["id"])
    logcontext.bind(op=operation.id)
    wait_s = seconds(request.query, "wait", 0.0, _MAX_WAIT_S)
    if wait_s:
        await operation.wait_for_news(wait_s)
    return answer(operation.document())


def _begun(operation: Operation) -> web.Response:
    logcontext.bind(op=operation.id)  # the audit line names it
    return answer(operation.document(), 202)


def _profile(context: Context) -> str | None:
    """Of the engine that there is."""
    lifecycle = context.supervisor.lifecycle
    return lifecycle.plan.profile.name if lifecycle.engine is not None and lifecycle.plan is not None else None


def _checked_drain(drain_s: float | None) -> float | None:
    if drain_s is not None and not 0.0 <= drain_s <= _MAX_DRAIN_S:
        raise UsageError(
            f"drain_s: {drain_s:g} is not between 0 and {_MAX_DRAIN_S:g}", hint="tfctl stop --drain 30", field="drain_s"
        )
    return drain_s


ROUTES = [
    web.post("/v1/engine/start", start),
    web.post("/v1/engine/stop", stop),
    web.post("/v1/engine/restart", restart),
    web.post("/v1/shutdown", shutdown),
    web.get("/v1/operations/{id}", get_operation),
]
