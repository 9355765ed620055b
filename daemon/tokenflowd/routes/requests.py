"""One request: why it stands where it does, and an end to it."""

from aiohttp import web

from tokenflow import link
from tokenflow.errors import NotFoundError, TimedOutError
from tokenflow.events import EventKind
from tokenflow.tuning import AbortDocument, ExplainDocument
from tokenflow.wire import RequestRow
from tokenflowd import commands
from tokenflowd.context import CONTEXT, Context
from tokenflowd.guard import caller, note
from tokenflowd.replies import answer


async def explain(request: web.Request) -> web.StreamResponse:
    """Every term of the policy's last decision about a live request."""
    context, rid = request.app[CONTEXT], request.match_info["rid"]
    engine = commands.engine_of(context, "so there is no request to explain")
    assert engine is not None
    reply = link.checked(await engine.command(link.ExplainStream(rid=rid)))
    assert reply.explanation is not None, "the scheduler explains what it does not refuse"
    return answer(ExplainDocument(profile=_profile(context), **reply.explanation))


async def abort(request: web.Request) -> web.StreamResponse:
    """Ends a request; one that has ended already is left as it is."""
    context, rid, who = request.app[CONTEXT], request.match_info["rid"], caller()
    engine = commands.engine_of(context, "so there is no request to end")
    assert engine is not None
    row = _row(context, rid)
    note(rid, row.state, "aborted")
    if row.state.is_live:
        reply = await engine.ask_frontend(link.AbortStream(rid=rid), commands.LIMIT_S)
        if reply is None:
            raise TimedOutError("the engine's HTTP process does not answer", hint="look at its log: tfctl logs -n 50")
        link.checked(reply)
        context.events.note(EventKind.ABORTED, rid=rid, who=who, terms={"state": row.state.value})
        context.changes.notify()
    return answer(AbortDocument(profile=_profile(context), rid=rid, state=row.state))


def _row(context: Context, rid: str) -> RequestRow:
    """Raises NotFoundError."""
    engine = context.supervisor.lifecycle.engine
    row = next((row for row in engine.requests.rows() if row.rid == rid), None) if engine is not None else None
    if row is None:
        raise NotFoundError(f"there is no request {rid!r} in the engine", hint="tfctl ps")
    return row


def _profile(context: Context) -> str | None:
    plan = context.supervisor.lifecycle.plan
    return plan.profile.name if plan is not None else None


ROUTES = [
    web.get("/v1/requests/{rid}/explain", explain),
    web.post("/v1/requests/{rid}/abort", abort),
]
