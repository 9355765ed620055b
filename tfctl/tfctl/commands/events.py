"""`tfctl events`"""

from typing import Annotated

import typer

from tfctl.client import Query
from tfctl.documents import EventDocument, EventsDocument
from tfctl.options import Command
from tfctl.output import note, write_json, write_line
from tfctl.session import Session
from tfctl.views.events import line_of
from tokenflow.events import EventKind, EventRow

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _known(kinds: list[str] | None) -> list[str] | None:
    """Taken apart at commas. Raises BadParameter for a kind that there is not."""
    words = [word for text in kinds or () for word in text.split(",")]
    for word in words:
        if word not in list(EventKind):
            raise typer.BadParameter(f"there is no kind {word!r}; there are: {', '.join(EventKind)}")
    return words or None


def _complete(incomplete: str) -> list[str]:
    return [kind for kind in EventKind if kind.startswith(incomplete)]


@app.command(cls=Command)
def events(
    ctx: typer.Context,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", show_default=False, help="Go on with what happens from now on.")
    ] = False,
    count: Annotated[int, typer.Option("--lines", "-n", metavar="N", min=0, help="How many of the last events.")] = 100,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            callback=_known,
            autocompletion=_complete,
            show_default=False,
            help="Only this kind; several with commas, or repeated.",
        ),
    ] = None,
) -> None:
    """Show what the policy and the operators did.

    With the reason, who asked for it, and the figures it was decided on. Kinds: preempted, resumed, released, held,
    unheld, aborted, mode, tuned, effect, overload_entered, overload_left, fault, disabled, engine_started,
    engine_adopted, engine_failed, engine_stopped, lost.
    """
    session = Session(ctx)
    client = session.client()
    query: Query = {"n": count, "kind": ",".join(kinds) if kinds else None, "follow": 1 if follow else None}
    silence_s = None if follow else client.timeout_s
    rows = client.stream("/v1/events", EventRow, query, silence_s=silence_s)
    if session.as_json and not follow:
        write_json(EventsDocument(events=list(rows)))
        return
    for row in rows:
        if session.as_json:
            write_json(EventDocument(event=row))
        else:
            write_line(line_of(row, session.look))
    if follow and session.is_chatty:
        note("the daemon has ended")
