"""`tfctl start`"""

from typing import Annotated

import typer

from tfctl import daemon
from tfctl.client import Client
from tfctl.operations import follow, reporter
from tfctl.options import EngineArgsCommand, WaitForIt, engine_args
from tfctl.output import INTERRUPTED, Role, note, write_json, write_line
from tfctl.profile_names import complete
from tfctl.session import Session
from tokenflow.errors import BadAnswerError, DaemonUnreachableError, TokenFlowError
from tokenflow.wire import EngineState, OperationDocument, StartRequest, StatusDocument

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=EngineArgsCommand)
def start(
    ctx: typer.Context,
    profile: Annotated[
        str | None,
        typer.Argument(autocompletion=complete, metavar="PROFILE", show_default=False, help="See: tfctl profile list."),
    ] = None,
    wait: WaitForIt = True,
) -> None:
    """Start the engine, and the daemon if none runs.

    Words behind `--` are handed to SGLang and override the profile's own: tfctl start demo-cpu -- --port 30001
    """
    session = Session(ctx)
    client = session.find()
    spawned: daemon.SpawnedDaemon | None = None
    if client is None:
        client, spawned = daemon.bring_up(session)
    try:
        operation = _start(session, client, profile, engine_args(ctx), wait=wait)
    except BadAnswerError:
        _clean_up(client, spawned)
        raise
    except DaemonUnreachableError as error:
        ending = None if spawned is None else spawned.ending()
        if ending is not None:
            raise ending from error
        _clean_up(client, spawned)
        raise
    except TokenFlowError:
        _clean_up(client, spawned)
        raise
    except KeyboardInterrupt:
        note(session.next_step("the start goes on; watch it: tfctl status --watch; end it: tfctl stop"))
        raise typer.Exit(INTERRUPTED) from None
    _print_result(session, client, operation, has_waited=wait)


def _start(
    session: Session, client: Client, profile: str | None, arguments: list[str], *, wait: bool
) -> OperationDocument:
    # What runs, or ran last, is what "start" without a name means; the daemon has a default where nothing ever ran.
    known = client.get("/v1/status", StatusDocument).engine.profile if profile is None else profile
    session.warn_if_other_version(client)
    request = StartRequest(profile=known, engine_args=arguments)
    operation = client.post("/v1/engine/start", request, OperationDocument)
    if known is None and session.is_chatty:
        taken = client.get("/v1/status", StatusDocument).engine.profile
        note(f"no profile named: taking {taken}; for others see: tfctl profile list")
    if not wait:
        return operation
    with reporter(session) as report:
        return follow(client, operation, report, session.options.timeout_s)


def _clean_up(client: Client, spawned: daemon.SpawnedDaemon | None) -> None:
    """Nothing serves, and nobody else asked for this daemon: a failed start leaves nothing behind."""
    if spawned is not None and not _has_engine(client):
        spawned.end()


def _has_engine(client: Client) -> bool:
    """A time limit that ran out ends our waiting, not the start; and an engine that was taken over goes on."""
    try:
        state = client.get("/v1/status", StatusDocument).engine.state
    except TokenFlowError:
        return False
    return state not in (EngineState.STOPPED, EngineState.FAILED)


def _print_result(session: Session, client: Client, operation: OperationDocument, *, has_waited: bool) -> None:
    if session.as_json:
        write_json(operation)
        return
    if session.options.quiet:
        return
    if not has_waited:
        write_line(session.next_step("the engine is starting; wait for it: tfctl wait --for serving"))
        return
    engine = client.get("/v1/status", StatusDocument).engine
    was_running = (operation.result or {}).get("already") is True
    verb = "already serving" if was_running else "serving"
    look = session.look
    write_line(
        f"{look.paint(verb, Role.GOOD)} {engine.model or 'the model'} at {engine.url} (profile {engine.profile})"
    )
    write_line(session.next_step("requests: tfctl ps; live view: tfctl top; stop: tfctl stop"))
