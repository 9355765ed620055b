"""`tfctl logs`"""

from typing import Annotated

import msgspec
import typer

from tfctl.client import Client
from tfctl.documents import LogLineDocument, LogsDocument
from tfctl.options import Command
from tfctl.output import write_json, write_line
from tfctl.session import Session
from tokenflow.errors import DaemonUnreachableError
from tokenflow.locations import user_state_folder

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _Line(msgspec.Struct):
    line: str


@app.command(cls=Command)
def logs(
    ctx: typer.Context,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", show_default=False, help="Go on with what is written from now on.")
    ] = False,
    line_count: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, help="How many of the last lines.")
    ] = 100,
) -> None:
    """Show the engine's log."""
    session = Session(ctx)
    client = session.find()
    if client is None:
        raise _no_daemon()
    if session.as_json and not follow:
        query = {"n": line_count}
        lines = [entry.line for entry in client.stream("/v1/logs", _Line, query, silence_s=client.timeout_s)]
        write_json(LogsDocument(lines=lines))
        return
    _print_lines(session, client, line_count, follow=follow)


def _print_lines(session: Session, client: Client, line_count: int, *, follow: bool) -> None:
    query = {"n": line_count, "follow": 1 if follow else None}
    silence_s = None if follow else client.timeout_s
    for entry in client.stream("/v1/logs", _Line, query, silence_s=silence_s):
        if session.as_json:
            write_json(LogLineDocument(line=entry.line))
        else:
            write_line(entry.line)


def _no_daemon() -> DaemonUnreachableError:
    """The log outlives the daemon; say where it lies."""
    last = user_state_folder() / "engine.log"
    if last.is_file():
        return DaemonUnreachableError("tokenflowd is not running", hint=f"the last engine's log: less {last}")
    return DaemonUnreachableError("tokenflowd is not running", hint="start it: tfctl start")
