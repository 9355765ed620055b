"""`tfctl transfers`"""

import typer

from tfctl.client import Client
from tfctl.documents import MovingRequest, TransfersDocument
from tfctl.glimpse import show
from tfctl.options import Command, Watch
from tfctl.session import Session
from tfctl.views.transfers import render_transfers
from tokenflow.policy.states import RequestState
from tokenflow.wire import RequestsDocument, StatusDocument

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_MOVING = f"{RequestState.OFFLOADING},{RequestState.LOADING}"


@app.command(cls=Command)
def transfers(ctx: typer.Context, watch_s: Watch = None) -> None:
    """Show what is copied between GPU and host.

    For each direction: what is queued, how fast it goes, how long it will take, and how much there was since the
    engine's start; then the requests that are on the move.
    """
    show(Session(ctx), watch_s, _document, render_transfers)


def _document(client: Client, status: StatusDocument) -> TransfersDocument:
    rows = client.get("/v1/requests", RequestsDocument, {"state": _MOVING}).requests
    moving = [
        MovingRequest(
            rid=row.rid, state=row.state, kv_device_tokens=row.kv_device_tokens, kv_host_tokens=row.kv_host_tokens
        )
        for row in rows
    ]
    return TransfersDocument(profile=status.profile, transfers=status.transfers, latency=status.latency, moving=moving)
