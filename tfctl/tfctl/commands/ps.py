"""`tfctl ps`"""

from typing import Annotated

import typer

from tfctl.client import Client, Query
from tfctl.options import Command, Watch
from tfctl.output import note, write_json, write_line
from tfctl.session import Session
from tfctl.views.requests import render_requests
from tfctl.watch import Screen, watch_silence_s
from tokenflow.policy.states import RequestState
from tokenflow.wire import RequestRow, RequestsDocument

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_UNITS = ("_s", "_tok_s", "_tokens", "_count")


def sort_key(text: str | None) -> str | None:
    """Callback of `--sort`: a column of the row, with or without its unit, `-` in front turns the order round."""
    if text is None:
        return None
    columns = RequestRow.__struct_encode_fields__
    name = text.removeprefix("-")
    for column in (name, *(name + unit for unit in _UNITS)):
        if column in columns:
            return "-" + column if text.startswith("-") else column
    raise typer.BadParameter(f"'{text}' is no column; there are: {', '.join(columns)}")


@app.command(cls=Command)
def ps(
    ctx: typer.Context,
    state: Annotated[
        RequestState | None, typer.Option("--state", show_default=False, help="Only requests in this state.")
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="KEY",
            callback=sort_key,
            show_default=False,
            help="A column, such as age_s; -age_s turns it round. Default: runway_s.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, show_default=False, help="N rows at most.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", "-a", show_default=False, help="Also those that have just ended.")
    ] = False,
    watch_s: Watch = None,
) -> None:
    """List requests, least runway first.

    RUNWAY is how long a reader can go on with what is unread; TOK/S is how fast it reads, and where that is known
    from (def default, cls class, hdr header, body, ack). With -q: request ids only.
    """
    session = Session(ctx)
    client = session.client()
    query: Query = {
        "state": state,
        "sort": sort,
        "limit": limit,
        "all": 1 if show_all else None,
    }
    if watch_s is None:
        document = client.get("/v1/requests", RequestsDocument, query)
        session.warn_if_other_version(client)
        _show(session, document, Screen(is_repeated=False))
        return
    _watch(session, client, watch_s, query)


def _watch(session: Session, client: Client, watch_s: float, query: Query) -> None:
    screen = Screen(is_repeated=True)
    silence_s = watch_silence_s(watch_s)
    for document in client.stream("/v1/requests", RequestsDocument, {**query, "watch": watch_s}, silence_s=silence_s):
        session.warn_if_other_version(client)
        _show(session, document, screen)
    if session.is_chatty:
        note("the daemon has ended")


def _show(session: Session, document: RequestsDocument, screen: Screen) -> None:
    if session.as_json:
        write_json(document)
        return
    if session.options.quiet:
        for row in document.requests:
            write_line(row.rid)
        return
    lines = render_requests(document.requests, session.look)
    hidden_count = document.total_count - len(document.requests)
    if not document.requests:
        lines = ["no requests"]
    elif hidden_count > 0:
        lines.append(f"and {hidden_count} more")
    screen.show(lines)
