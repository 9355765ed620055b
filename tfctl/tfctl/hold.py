"""What `tfctl pause` and `tfctl resume` share."""

from typing import Annotated
from urllib.parse import quote

import typer

from tfctl.output import write_json, write_line
from tfctl.session import Session
from tokenflow.errors import UsageError
from tokenflow.tuning import HoldDocument

Rid = Annotated[str, typer.Argument(metavar="RID", show_default=False, help="A request, as tfctl ps names it.")]


def carry_out(ctx: typer.Context, rid: str, *, is_held: bool) -> None:
    """The rid is taken as it is: no prefix, no pattern."""
    if not rid.strip():
        raise UsageError("RID is empty", hint="tfctl ps", field="rid")
    session = Session(ctx)
    client = session.client()
    action = "pause" if is_held else "resume"
    document = client.post(f"/v1/requests/{quote(rid, safe='')}/{action}", None, HoldDocument)
    session.warn_if_other_version(client)
    if session.as_json:
        write_json(document)
    elif not session.options.quiet:
        write_line(f"{document.rid}: held (it was {document.state})" if is_held else f"{document.rid}: let go")
