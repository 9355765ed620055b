"""`tfctl capacity`"""

import typer

from tfctl.client import Client
from tfctl.documents import CapacityDocument
from tfctl.glimpse import show
from tfctl.options import Command, Watch
from tfctl.session import Session
from tfctl.views.capacity import render_capacity
from tokenflow.wire import StatusDocument

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=Command)
def capacity(ctx: typer.Context, watch_s: Watch = None) -> None:
    """Show what the engine can make against what its readers want.

    Capacity is what the engine could make at the batch that fits; demand is the sum of the reading rates of all live
    streams. Above it, overload: the oldest streams that fit are served, the others wait.
    """
    show(Session(ctx), watch_s, _document, render_capacity)


def _document(_client: Client, status: StatusDocument) -> CapacityDocument:
    quality = status.quality
    return CapacityDocument(
        profile=status.profile,
        capacity=status.capacity,
        is_overloaded=status.policy.overload,
        raw_tok_s=quality.raw_tok_s,
        effective_tok_s=quality.effective_tok_s,
    )
