"""`tfctl mode`"""

from typing import Annotated

import typer

from tfctl.options import Command
from tfctl.output import write_json, write_line
from tfctl.session import Session
from tokenflow.policy.states import Mode
from tokenflow.wire import ModeDocument, ModeRequest

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=Command)
def mode(
    ctx: typer.Context,
    wanted: Annotated[
        Mode | None,
        typer.Argument(metavar="MODE", show_default=False, help="observe, enforce or off; without it, show it."),
    ] = None,
    direct: Annotated[
        bool,
        typer.Option(
            "--direct", show_default=False, help="Ask the engine itself, on its link: works with the daemon dead."
        ),
    ] = False,
) -> None:
    """Show or set what the policy may do.

    observe: track and decide, change nothing. enforce: carry the decisions out. off: stock scheduling.
    """
    session = Session(ctx)
    if direct:
        from tokenflow.direct import ask_mode

        document = ask_mode(session.options.socket, wanted, session.options.timeout_s)
    else:
        document = _ask_daemon(session, wanted)
    if session.as_json:
        write_json(document)
    elif document.mode is None:
        write_line("not known: no engine runs")
    else:
        write_line(document.mode)


def _ask_daemon(session: Session, wanted: Mode | None) -> ModeDocument:
    client = session.client()
    if wanted is None:
        document = client.get("/v1/mode", ModeDocument)
    else:
        document = client.put("/v1/mode", ModeRequest(mode=wanted), ModeDocument)
    session.warn_if_other_version(client)
    return document
