"""`tfctl bugreport`"""

import io
import tarfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tfctl.host_documents import BugreportDocument
from tfctl.options import Command, seconds
from tfctl.output import note, write_json, write_line
from tfctl.session import Session
from tokenflow.errors import OperationError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=Command)
def bugreport(
    ctx: typer.Context,
    duration_s: Annotated[
        float, typer.Option("--duration", metavar="S", callback=seconds, help="Watch the engine for so long first.")
    ] = 0.0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", show_default=False, help="Where to write it.")
    ] = None,
) -> None:
    """Collect what a report of a problem needs into one archive.

    Status, requests (ids, counts, times), events, metrics, tunables, profile and settings, the doctor's checks, what
    the flight recorder and crashed engines have left, the daemon's log, and of the engine's log the lines that hold no
    text of requests. Keys and passwords are taken out. Look through it before you give it away. Works with the daemon
    down.
    """
    session = Session(ctx)
    from tfctl.bugreport.collect import parts

    name = f"tokenflow-bugreport-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    path = (output or Path(f"{name}.tar.gz")).absolute()
    names = []
    try:
        with path.open("xb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            path.chmod(0o600)
            for part in parts(session, duration_s, note if session.is_chatty else lambda _: None):
                info = tarfile.TarInfo(f"{name}/{part.name}")
                info.size, info.mode, info.mtime = len(part.content), 0o600, int(time.time())
                archive.addfile(info, io.BytesIO(part.content))
                names.append(part.name)
    except KeyboardInterrupt:
        path.unlink(missing_ok=True)
        raise
    except OSError as error:
        if not isinstance(error, FileExistsError):
            path.unlink(missing_ok=True)
        raise OperationError(
            f"cannot write {path}: {error.strerror}", hint="name another file: tfctl bugreport --output FILE"
        ) from error
    if session.as_json:
        write_json(BugreportDocument(path=str(path), size_bytes=path.stat().st_size, files=names))
    elif session.options.quiet:
        write_line(str(path))
    else:
        size_kib = path.stat().st_size / 1024
        write_line(f"{path} ({size_kib:.0f} KiB, {len(names)} files); look through it: tar tzf {path}")
