"""`tfctl resume`"""

import typer

from tfctl.hold import carry_out
from tfctl.options import Command
from tfctl.rids import Rid

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=Command)
def resume(ctx: typer.Context, rid: Rid) -> None:
    """Let a held request go on.

    It gets a place in its turn, by the policy's order.
    """
    carry_out(ctx, rid, is_held=False)
