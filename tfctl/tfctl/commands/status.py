"""`tfctl status`"""

import typer

from tfctl.client import Client
from tfctl.leftover import find_leftover
from tfctl.options import Command, Watch
from tfctl.output import note, write_json, write_line
from tfctl.session import Session
from tfctl.views.status import render_no_daemon, render_status
from tfctl.watch import Screen, watch_silence_s
from tokenflow.errors import BadAnswerError, DaemonUnreachableError, TimedOutError
from tokenflow.wire import (
    Capacity,
    EngineInfo,
    EngineState,
    Latency,
    PolicyInfo,
    Quality,
    StatusDocument,
    Transfers,
)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

NOT_RUNNING, UNKNOWN = 3, 4
_EXIT_CODES = {EngineState.SERVING: 0, EngineState.BUSY: 0, EngineState.WEDGED: UNKNOWN}


@app.command(cls=Command)
def status(
    ctx: typer.Context,
    watch_s: Watch = None,
) -> None:
    """Show the daemon, the engine and the policy.

    Exit code: 0 serving or busy; 3 no daemon, stopped, starting, draining or failed; 4 wedged, or no sane answer.
    """
    session = Session(ctx)
    client = session.find()
    if client is None:
        raise typer.Exit(_show_no_daemon(session))
    try:
        code = _show_once(session, client) if watch_s is None else _watch(session, client, watch_s)
    except (BadAnswerError, TimedOutError) as error:
        code = _show_unknown(session, error)
    except DaemonUnreachableError:
        code = _show_no_daemon(session)  # gone since it was found
    raise typer.Exit(code)


def _exit_code(document: StatusDocument) -> int:
    return _EXIT_CODES.get(document.engine.state, NOT_RUNNING)


def _show_once(session: Session, client: Client) -> int:
    document = client.get("/v1/status", StatusDocument)
    session.warn_if_other_version(client)
    _show(session, document, Screen(is_repeated=False))
    return _exit_code(document)


def _watch(session: Session, client: Client, watch_s: float) -> int:
    screen = Screen(is_repeated=True)
    code = NOT_RUNNING
    silence_s = watch_silence_s(watch_s)
    for document in client.stream("/v1/status", StatusDocument, {"watch": watch_s}, silence_s=silence_s):
        session.warn_if_other_version(client)
        _show(session, document, screen)
        code = _exit_code(document)
    # The daemon ended the stream: it is on its way out.
    return code if session.find_socket() is not None else _show_no_daemon(session)


def _show(session: Session, document: StatusDocument, screen: Screen) -> None:
    if session.as_json:
        write_json(document)
    elif not session.options.quiet:
        screen.show(render_status(document, session.look))


def _show_no_daemon(session: Session) -> int:
    leftover = find_leftover(session.options.socket)
    engine = EngineInfo(state=EngineState.STOPPED)
    if leftover is not None:
        reason = f"its engine runs on without it, pid {leftover.pid}"
        engine = EngineInfo(state=leftover.state, reason=reason, pid=leftover.pid, profile=leftover.profile)
    if session.as_json:
        write_json(
            StatusDocument(
                daemon=None,
                engine=engine,
                policy=PolicyInfo(),
                capacity=Capacity(),
                transfers=Transfers(),
                latency=Latency(),
                quality=Quality(),
            )
        )
    elif not session.options.quiet:
        for line in render_no_daemon(session.look, engine):
            write_line(line)
    return NOT_RUNNING


def _show_unknown(session: Session, error: BadAnswerError | TimedOutError) -> int:
    from tokenflow.wire import ErrorDocument

    if session.as_json:
        write_json(ErrorDocument(error=error.body()))
    else:
        note(f"error: {error.message}")
        if error.hint:
            note(f"hint:  {error.hint}")
    return UNKNOWN
