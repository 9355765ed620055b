"""`tfctl profile diff`"""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tfctl.documents import ProfileChange, ProfileDiffDocument
from tfctl.output import Look, Role, write_json, write_line
from tfctl.profile.changes import find_changes
from tfctl.profile_names import complete
from tfctl.profiles import valid_contents
from tfctl.session import Session
from tokenflow.errors import ConflictError
from tokenflow.tuning import Applies
from tokenflow.wire import StatusDocument

_WORDS = {Applies.LIVE: "at once", Applies.DRAIN: "new streams", Applies.RESTART: "restart"}


def diff(
    ctx: typer.Context,
    first: Annotated[
        str, typer.Argument(autocompletion=complete, metavar="OLD", show_default=False, help="A profile.")
    ],
    second: Annotated[
        str | None,
        typer.Argument(
            autocompletion=complete,
            metavar="NEW",
            show_default=False,
            help="Another; with one, it is NEW and OLD is what runs.",
        ),
    ] = None,
) -> None:
    """Show what two profiles differ in, and when the engine would work with the new values."""
    session = Session(ctx)
    old, new = (running_profile(session), first) if second is None else (first, second)
    changes = find_changes(valid_contents(old), valid_contents(new))
    if session.as_json:
        write_json(ProfileDiffDocument(old=old, new=new, changes=changes))
        return
    for line in change_lines(changes, session.look):
        write_line(line)
    if not changes and not session.options.quiet:
        write_line(f"{old} and {new} say the same")


def running_profile(session: Session) -> str:
    """The name of the profile that the engine runs under. Raises ConflictError, DaemonUnreachableError."""
    engine = session.client().get("/v1/status", StatusDocument).engine
    if engine.profile is None:
        raise ConflictError("no engine runs, so there is no profile to compare with", hint="tfctl profile diff OLD NEW")
    return engine.profile


def change_lines(changes: Sequence[ProfileChange], look: Look) -> list[str]:
    """One line a value, with when it applies."""
    width = max((len(change.key) for change in changes), default=0)
    found = []
    for change in changes:
        when = look.paint(_WORDS[change.applies], Role.WARN if change.applies is Applies.RESTART else Role.FAINT)
        found.append(f"{change.key:<{width}}  {_text(change.old)} -> {_text(change.new)}  ({when})")
    return found


def _text(value: Any) -> str:  # noqa: ANN401 - whatever TOML holds
    if value is None:
        return "(not set)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(map(str, value)) or "(none)"
    return f"{value:g}" if isinstance(value, int | float) else str(value)
