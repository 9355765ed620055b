"""The tunables: read back from the engine, changed all together or not at all."""

import time

from aiohttp import web

from tokenflow import link
from tokenflow.tuning import TuneRequest
from tokenflowd import commands
from tokenflowd.context import CONTEXT
from tokenflowd.replies import answer, caller, log, read_body


async def get_tunables(request: web.Request) -> web.StreamResponse:
    context = request.app[CONTEXT]
    engine = commands.engine_of(context, None)
    reply = await engine.command(link.Ping()) if engine is not None else None
    return answer(context.snapshots.tunables(reply))


async def patch_tunables(request: web.Request) -> web.StreamResponse:
    context = request.app[CONTEXT]
    wish = await read_body(request, TuneRequest)
    engine = commands.engine_of(context, "so there is nothing to tune")
    assert engine is not None
    command = link.Tune(
        changes=wish.changes,
        if_revision=wish.if_revision,
        dry_run=wish.dry_run,
        deadline_s=time.monotonic() + commands.LIMIT_S,
        who=caller(request),
    )
    reply = commands.checked(await engine.command(command))
    if not wish.dry_run:
        log.info("tuned", changes=wish.changes, revision=reply.revision, by=command.who)
        context.changes.notify()
    document = context.snapshots.tunables(reply)
    document.dry_run = wish.dry_run
    return answer(document)


ROUTES = [web.get("/v1/tunables", get_tunables), web.patch("/v1/tunables", patch_tunables)]
