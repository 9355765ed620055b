"""`tfctl abort`"""

from urllib.parse import quote

import typer

from tfctl.options import Command
from tfctl.output import write_json, write_line
from tfctl.rids import Rid, checked
from tfctl.session import Session
from tokenflow.tuning import AbortDocument

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=Command)
def abort(ctx: typer.Context, rid: Rid) -> None:
    """End a request.

    Its client gets what was made so far, and an end. One that has ended already is left as it is.
    """
    checked(rid)
    session = Session(ctx)
    client = session.client()
    document = client.post(f"/v1/requests/{quote(rid, safe='')}/abort", None, AbortDocument)
    session.warn_if_other_version(client)
    if session.as_json:
        write_json(document)
    elif not session.options.quiet:
        is_live = document.state.is_live
        write_line(f"{rid}: aborted (it was {document.state})" if is_live else f"{rid}: had ended ({document.state})")
