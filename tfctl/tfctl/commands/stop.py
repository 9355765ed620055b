"""`tfctl stop`"""

from datetime import UTC, datetime
from typing import Annotated

import typer

from tfctl.client import Client, wait_until_gone
from tfctl.leftover import end_leftover
from tfctl.operations import follow, reporter
from tfctl.options import Command, Drain
from tfctl.output import write_json, write_line
from tfctl.session import Session
from tokenflow.errors import BadAnswerError, DaemonUnreachableError, TimedOutError
from tokenflow.wire import EngineState, LeftoverEngine, OperationDocument, OperationState, StatusDocument, StopRequest

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_DAEMON_END_LIMIT_S = 30.0


@app.command(cls=Command)
def stop(
    ctx: typer.Context,
    drain_s: Drain = None,
    end_daemon: Annotated[bool, typer.Option("--daemon", help="End the daemon too.", show_default=False)] = False,
) -> None:
    """Stop the engine.

    No new request is taken from then on; streams may finish for the time given with --drain, the rest end with an
    error event. A daemon that `tfctl start` brought up ends with its engine. Nothing running is not an error.
    """
    session = Session(ctx)
    client = session.find()
    if client is None:
        _print_without_daemon(session, end_leftover(session.options.socket))
        return
    before = client.get("/v1/status", StatusDocument)
    session.warn_if_other_version(client)
    operation = _stop(session, client, StopRequest(drain_s=drain_s, daemon=end_daemon))
    has_daemon_ended = end_daemon or (before.daemon is not None and before.daemon.on_demand)
    pid = before.daemon.pid if before.daemon is not None else None
    if has_daemon_ended and not wait_until_gone(client.path, pid, _DAEMON_END_LIMIT_S):
        raise TimedOutError(
            f"the engine has stopped, but the daemon (pid {pid}) still runs after {_DAEMON_END_LIMIT_S:g} s",
            hint=f"end it: kill {pid}",
        )
    if session.as_json:
        write_json(operation)
    elif not session.options.quiet:
        write_line(_summary(before.engine.state, has_daemon_ended=has_daemon_ended))


def _stop(session: Session, client: Client, request: StopRequest) -> OperationDocument:
    operation = client.post("/v1/engine/stop", request, OperationDocument)
    try:
        with reporter(session) as report:
            return follow(client, operation, report, session.options.timeout_s)
    except BadAnswerError:
        raise
    except DaemonUnreachableError:
        # It has ended between two questions, as it was told to.
        operation.state = OperationState.DONE
        return operation


def _summary(before: EngineState, *, has_daemon_ended: bool) -> str:
    was_running = before is not EngineState.STOPPED
    engine = "the engine has stopped" if was_running else "no engine was running"
    return engine + ("; the daemon has ended" if has_daemon_ended else "")


def _print_without_daemon(session: Session, ended: LeftoverEngine | None) -> None:
    if session.as_json:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        document = OperationDocument(
            id="none",
            kind="stop",
            state=OperationState.DONE,
            started_at=now,
            finished_at=now,
            result={"already": True} if ended is None else {"already": False, "leftover_pid": ended.pid},
        )
        write_json(document)
    elif session.options.quiet:
        return
    elif ended is None:
        write_line("nothing is running")
    else:
        write_line(f"the engine of a daemon that has ended (pid {ended.pid}, profile {ended.profile}) has been ended")
