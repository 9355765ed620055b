"""`tfctl profile create`"""

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from tfctl.documents import ProfileWrittenDocument
from tfctl.output import note, write_json, write_line
from tfctl.profile.writing import check_name, parse, set_values, write_profile
from tfctl.profiles import check_profiles, read_profile
from tfctl.session import Session
from tokenflow.errors import ConfigurationError
from tokenflow.locations import socket_candidates

_DEFAULT_BASE = "demo-cpu"


def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Of the new profile.")],
    base: Annotated[str, typer.Option("--from", metavar="PROFILE", help="The profile to begin with.")] = _DEFAULT_BASE,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="FOLDER", show_default=False, help="Another model's folder."),
    ] = None,
    served_name: Annotated[
        str | None,
        typer.Option("--served-name", metavar="NAME", show_default=False, help="The model's name in the API."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", min=0, max=65535, show_default=False, help="0: any free one."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", show_default=False, help="A tunable; may be repeated."),
    ] = None,
    description: Annotated[
        str | None, typer.Option("--description", metavar="TEXT", show_default=False, help="One line.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", show_default=False, help="Replace one of that name.")] = False,
) -> None:
    """Make a profile: a copy of another one, with changes.

    It is checked before it is written. Comments of the first profile stay.
    """
    session = Session(ctx)
    check_name(name)
    summary, text, _ = read_profile(base)
    values: dict[str, Any] = {"name": name}
    if description is not None or base != name:
        values["description"] = description or f"made from {base}"
    if model is not None:
        values["model.path"] = str(model.expanduser().absolute())
        values["model.served_name"] = served_name or model.absolute().name
    elif served_name is not None:
        values["model.served_name"] = served_name
    if port is not None:
        values["engine.port"] = port
    values |= _tunables(settings or [])
    made = set_values(parse(text), values)
    _check(name, made)
    origin, path = write_profile(name, made, is_replacing=force)
    if session.as_json:
        write_json(ProfileWrittenDocument(name=name, origin=origin, path=str(path), contents=tomllib.loads(made)))
    elif session.options.quiet:
        write_line(str(path))
    else:
        write_line(f"{path}: made from {base} ({summary.origin})")
        write_line(session.next_step(f"start it: tfctl start {name}; look at it: tfctl profile show {name}"))
        warn_if_unseen(session, origin)


def warn_if_unseen(session: Session, origin: str) -> None:
    """The system's daemon runs as another user and does not look into this one's folders."""
    if origin == "user" and session.options.socket is None and session.find_socket() == socket_candidates()[0]:
        note("the system's daemon does not look there; for it, do the same as root: sudo tfctl profile create ...")


def _tunables(words: list[str]) -> dict[str, Any]:
    """Typed by the policy's own rules. Raises UsageError."""
    from tfctl.commands.tune import parse_changes
    from tokenflow.errors import UsageError
    from tokenflow.policy.tunables import Tunables, check, plain

    changes = parse_changes(words)
    wanted, problems = check(changes, Tunables())
    if problems:
        raise UsageError("; ".join(problem.message for problem in problems), hint="tfctl tune", field=problems[0].key)
    values = plain(wanted)
    return {f"tunables.{key}": values[key] for key in changes}


def _check(name: str, text: str) -> None:
    """Raises ConfigurationError with every fault of what would be written."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tfctl-") as folder:
        draft = Path(folder) / f"{name}.toml"
        draft.write_text(text, encoding="utf-8")
        (checked,) = check_profiles([str(draft)])
    if checked.faults:
        raise ConfigurationError(
            "\n".join(fault.text(f"{name}.toml") for fault in checked.faults),
            hint=f"nothing was written; begin with another profile: tfctl profile create {name} --from PROFILE",
        )
