"""`tfctl pause`"""

import typer

from tfctl.hold import carry_out
from tfctl.options import Command
from tfctl.rids import Rid

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=Command)
def pause(ctx: typer.Context, rid: Rid) -> None:
    """Hold a request until it is resumed.

    A running stream is paused and keeps its KV; its client stays connected and gets nothing. One that waits is not
    started. Needs mode enforce; another mode lets everybody go.
    """
    carry_out(ctx, rid, is_held=True)
