"""What `tfctl pause` and `tfctl resume` share."""

from urllib.parse import quote

import typer

from tfctl.output import write_json, write_line
from tfctl.rids import checked
from tfctl.session import Session
from tokenflow.tuning import HoldDocument


def carry_out(ctx: typer.Context, rid: str, *, is_held: bool) -> None:
    """The rid is taken as it is: no prefix, no pattern."""
    checked(rid)
    session = Session(ctx)
    client = session.client()
    action = "pause" if is_held else "resume"
    document = client.post(f"/v1/requests/{quote(rid, safe='')}/{action}", None, HoldDocument)
    session.warn_if_other_version(client)
    if session.as_json:
        write_json(document)
    elif not session.options.quiet:
        write_line(f"{document.rid}: held (it was {document.state})" if is_held else f"{document.rid}: let go")
