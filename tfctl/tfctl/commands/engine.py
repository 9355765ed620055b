"""`tfctl engine`"""

from typing import Annotated

import msgspec
import typer

from tfctl.documents import EngineSetDocument
from tfctl.options import Command, group
from tfctl.output import Role, note, write_json, write_line
from tfctl.session import Session
from tokenflow.errors import UsageError

app = group("Install or show the engine's packages.\n\nThey go into the environment that tfctl itself runs in.")


@app.command(cls=Command)
def install(
    ctx: typer.Context,
    cpu: Annotated[bool, typer.Option("--cpu", show_default=False, help="The pinned set for the CPU.")] = False,
    cuda: Annotated[bool, typer.Option("--cuda", show_default=False, help="SGLang's own set, for a GPU.")] = False,
) -> None:
    """Install the engine's packages into this environment."""
    session = Session(ctx)
    if cpu == cuda:
        raise UsageError("choose one of --cpu and --cuda", hint="tfctl engine install --cpu")
    from tokenflow.setup import packages

    report = note if session.is_chatty else _ignore
    (packages.install_cpu if cpu else packages.install_cuda)(report)
    _show(session)


@app.command(cls=Command)
def show(ctx: typer.Context) -> None:
    """Show which of the engine's packages are installed here."""
    _show(Session(ctx))


def _show(session: Session) -> None:
    from tokenflow.setup import packages

    engine_set = msgspec.to_builtins(packages.describe())
    if session.as_json:
        write_json(EngineSetDocument(engine_set=engine_set))
        return
    width = max(len(name) for name in engine_set)
    for name, value in engine_set.items():
        label = session.look.paint(name.replace("_", " ").ljust(width), Role.FAINT)
        write_line(f"{label}  {_text(value)}")


def _text(value: object) -> str:
    match value:
        case None | [] | {}:
            return "none"
        case bool():
            return "yes" if value else "no"
        case dict():
            return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
        case list():
            return ", ".join(_text(item) for item in value)
        case _:
            return str(value)


def _ignore(text: str) -> None:
    return None
