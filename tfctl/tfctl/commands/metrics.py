"""`tfctl metrics`"""

import os
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tfctl.documents import MetricsDocument
from tfctl.options import Command
from tfctl.output import write_json, write_text
from tfctl.session import Session
from tokenflow.errors import OperationError, UsageError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_FILE_MODE = 0o644  # node_exporter runs as a user of its own


class Action(StrEnum):
    PRINT = "print"
    WRITE = "write"


@app.command(cls=Command)
def metrics(
    ctx: typer.Context,
    action: Annotated[
        Action, typer.Argument(metavar="ACTION", help="print or write; without it, print.", show_default=False)
    ] = Action.PRINT,
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", show_default=False, help="The file that write replaces; it ends in .prom."),
    ] = None,
) -> None:
    """Print the daemon's metrics, or write them to a file.

    write is for the textfile collector of node_exporter, where Prometheus cannot scrape the daemon itself: run it
    from a timer. The file is replaced as a whole. Where no daemon answers it stays as it was, with its old date.
    """
    session = Session(ctx)
    if (action is Action.WRITE) is not (path is not None):
        raise UsageError(
            "write takes the path of a file, print takes none",
            hint="tfctl metrics write /var/lib/prometheus/node-exporter/tokenflow.prom",
            field="PATH",
        )
    client = session.client()
    text = client.get_text("/metrics")
    session.warn_if_other_version(client)
    if path is not None:
        _replace(path, text)
    if session.as_json:
        write_json(MetricsDocument(text=text, path=None if path is None else str(path)))
    elif path is None:
        write_text(text)


def _replace(path: Path, text: str) -> None:
    """Whole or not at all: a reader never sees half of it, and nothing is left behind. Raises OperationError."""
    draft: str | None = None
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), _FILE_MODE)
        os.replace(draft, path)
        draft = None
    except OSError as error:
        raise OperationError(
            f"cannot write {path}: {error.strerror}",
            hint="name a file in a folder that you may write to: tfctl metrics write PATH",
            field="PATH",
        ) from error
    finally:
        if draft is not None:
            os.unlink(draft)
