"""`tfctl restart`"""

from typing import Annotated

import typer

from tfctl.operations import follow, reporter
from tfctl.options import Drain, EngineArgsCommand, WaitForIt, engine_args
from tfctl.output import INTERRUPTED, Role, note, write_json, write_line
from tfctl.profile_names import complete
from tfctl.session import Session
from tokenflow.wire import OperationDocument, RestartRequest, StatusDocument

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=EngineArgsCommand)
def restart(
    ctx: typer.Context,
    profile: Annotated[
        str | None,
        typer.Argument(
            autocompletion=complete,
            metavar="PROFILE",
            show_default=False,
            help="Another profile than the one that runs.",
        ),
    ] = None,
    drain_s: Drain = None,
    wait: WaitForIt = True,
) -> None:
    """Stop the engine and start it again."""
    session = Session(ctx)
    client = session.client()
    request = RestartRequest(drain_s=drain_s, profile=profile, engine_args=engine_args(ctx))
    operation = client.post("/v1/engine/restart", request, OperationDocument)
    session.warn_if_other_version(client)
    try:
        if wait:
            with reporter(session) as report:
                operation = follow(client, operation, report, session.options.timeout_s)
    except KeyboardInterrupt:
        note(session.next_step("the restart goes on; watch it: tfctl status --watch; end it: tfctl stop"))
        raise typer.Exit(INTERRUPTED) from None
    if session.as_json:
        write_json(operation)
    elif not session.options.quiet and not wait:
        write_line(session.next_step("the engine is restarting; wait for it: tfctl wait --for serving"))
    elif not session.options.quiet:
        engine = client.get("/v1/status", StatusDocument).engine
        write_line(
            f"{session.look.paint('serving', Role.GOOD)} {engine.model} at {engine.url} (profile {engine.profile})"
        )
