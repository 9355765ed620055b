"""The tunables: read back from the engine, changed all together or not at all."""

from aiohttp import web

from tokenflow import link
from tokenflow.tuning import TuneRequest
from tokenflowd import commands
from tokenflowd.context import CONTEXT
from tokenflowd.guard import caller, note
from tokenflowd.replies import answer, read_body


async def get_tunables(request: web.Request) -> web.StreamResponse:
    context = request.app[CONTEXT]
    engine = commands.engine_of(context, None)
    reply = await engine.command(link.Ping()) if engine is not None else None
    return answer(context.snapshots.tunables(reply))


async def patch_tunables(request: web.Request) -> web.StreamResponse:
    context = request.app[CONTEXT]
    wish = await read_body(request, TuneRequest)
    engine = commands.engine_of(context, None)
    before = (await engine.command(link.Ping())).tunables if engine is not None else None
    keys = [*wish.changes, *wish.reset]
    old = None if before is None else {key: before[key] for key in keys if key in before}
    note(_what(wish), old, {**dict.fromkeys(wish.reset, "reset"), **wish.changes})
    reply = await context.tuner.change(wish, caller())
    if not wish.dry_run:
        context.changes.notify()
    document = context.snapshots.tunables(reply)
    document.dry_run = wish.dry_run
    return answer(document)


def _what(wish: TuneRequest) -> str:
    if wish.dry_run:
        return "tunables (dry run)"
    return "tunables, persisted" if wish.persist else "tunables"


ROUTES = [web.get("/v1/tunables", get_tunables), web.patch("/v1/tunables", patch_tunables)]
