"""`tfctl top`"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tfctl.documents import TopDocument
from tfctl.options import Command
from tfctl.output import write_json, write_line
from tfctl.session import Session
from tokenflow.errors import ConfigurationError, HostError, UsageError
from tokenflow.wire import RequestsDocument, StatusDocument

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=Command)
def top(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", show_default=False, help="Print one frame and exit.")] = False,
    readonly: Annotated[
        bool, typer.Option("--readonly", show_default=False, help="Without the keys that change anything.")
    ] = False,
    use_ascii: Annotated[bool, typer.Option("--ascii", show_default=False, help="No Unicode glyphs.")] = False,
    theme: Annotated[
        str | None, typer.Option("--theme", metavar="NAME", show_default=False, help="Colours; see above.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", show_default=False, help="Write what is seen to FILE.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", show_default=False, help="Show what was recorded.")
    ] = None,
    say: Annotated[str | None, typer.Option("--say", hidden=True, help="One line above it all.")] = None,
) -> None:
    """Watch requests live.

    Keys: q quits, ? lists all keys, / filters, Enter shows one request with the policy's terms, space freezes the view
    while the engine goes on, [ and ] go back and forth in time. Themes: textual-dark, textual-light, colour-blind,
    high-contrast and others; Ctrl-P changes them.

    A recording holds 256 MiB at most, half an hour of a busy engine is a few of them. A replay needs no daemon:
    space pauses it, + and - change its speed; with --once its last moment is printed.
    """
    session = Session(ctx)
    if record is not None and (replay is not None or once):
        raise UsageError("--record goes with neither --replay nor --once", hint="tfctl top --record FILE")
    if once:
        _print_frame(session, replay, use_ascii=use_ascii)
        return
    if session.as_json:
        raise UsageError("the live view has no JSON", hint="tfctl top --once --json, or tfctl ps --json --watch")
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stdout is not None and sys.stdout.isatty()):
        raise UsageError("the live view needs a terminal", hint="tfctl top --once")
    path = None if replay is not None else session.client().path
    _check_view(theme)
    from tokenflow_tui.app import LiveView
    from tokenflow_tui.recording import Recorder, read

    view = LiveView(
        path,
        explicit=session.options.socket,
        recorder=None if record is None else Recorder(record),
        recording=None if replay is None else read(replay),
        use_ascii=use_ascii,
        is_readonly=readonly,
        theme=theme,
        say=say,
    )
    view.run()
    if view.failure is not None:
        raise view.failure
    if view.return_code:
        raise typer.Exit(view.return_code)


def _check_view(theme: str | None) -> None:
    """Raises HostError where the view's package is not there, UsageError for an unknown theme."""
    try:
        from textual.theme import BUILTIN_THEMES

        from tokenflow_tui.palette import THEMES
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "textual":
            raise
        raise HostError(
            "the live view's package (textual) is not installed here",
            hint=f"install it: {sys.executable} -m pip install 'tokenflow-serving[tui]'; or: tfctl top --once",
        ) from None
    known = sorted({*(own.name for own in THEMES), *BUILTIN_THEMES})
    if theme is not None and theme not in known:
        raise UsageError(f"there is no theme {theme!r}; there are: {', '.join(known)}", hint="tfctl top", field="theme")


def _print_frame(session: Session, replay: Path | None, *, use_ascii: bool) -> None:
    status, requests = _frame_of(session) if replay is None else _last_of(replay)
    if session.as_json:
        write_json(TopDocument(status=status, requests=requests))
        return
    from tokenflow_tui.frame import render_frame

    for line in render_frame(status, requests, session.look, use_ascii=use_ascii):
        write_line(line)


def _frame_of(session: Session) -> tuple[StatusDocument, RequestsDocument]:
    client = session.client()
    status = client.get("/v1/status", StatusDocument)
    requests = client.get("/v1/requests", RequestsDocument)
    session.warn_if_other_version(client)
    return status, requests


def _last_of(replay: Path) -> tuple[StatusDocument, RequestsDocument]:
    """Raises ConfigurationError."""
    from tokenflow_tui.moment import UnreadableError
    from tokenflow_tui.recording import read

    try:
        moment = read(replay).moments[-1].moment()
    except UnreadableError as error:
        raise ConfigurationError(
            f"{replay} cannot be read by this tfctl ({error})", hint="make another: tfctl top --record FILE"
        ) from error
    assert moment.status is not None
    assert moment.requests is not None
    return moment.status, moment.requests
