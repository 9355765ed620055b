"""`tfctl profile apply`"""

from typing import Annotated

import typer

from tfctl.documents import ProfileChange, ProfileDiffDocument
from tfctl.operations import follow, reporter
from tfctl.options import Drain
from tfctl.output import note, write_json, write_line
from tfctl.profile.changes import find_changes
from tfctl.profile.diff import change_lines, running_profile
from tfctl.profile_names import complete
from tfctl.profiles import valid_contents
from tfctl.session import Session
from tokenflow.errors import ConflictError
from tokenflow.tuning import Applies, Origin, TunablesDocument, TuneRequest
from tokenflow.wire import OperationDocument, RestartRequest

_HELD_ABOVE = (Origin.FILE, Origin.ENVIRONMENT, Origin.PERSISTED)  # stronger than any profile


def apply(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(autocompletion=complete, metavar="NAME", show_default=False, help="See: tfctl profile list."),
    ],
    restart: Annotated[
        bool, typer.Option("--restart", show_default=False, help="Restart the engine where that is needed.")
    ] = False,
    drain_s: Drain = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", show_default=False, help="Show what would be changed, and when.")
    ] = False,
) -> None:
    """Bring the running engine to what a profile says.

    Tunables are changed in the running engine. Anything else needs a restart, which --restart allows: nothing is
    changed without it then.
    """
    session = Session(ctx)
    new = valid_contents(name)
    old_name = running_profile(session)
    client = session.client()
    differences = find_changes(valid_contents(old_name), new)
    to_restart = [change for change in differences if change.applies is Applies.RESTART]
    live, skipped = _live_changes(client.get("/v1/tunables", TunablesDocument), new)
    document = ProfileDiffDocument(old=old_name, new=name, changes=[*live, *to_restart], skipped=skipped)
    if not dry_run:
        if to_restart and not restart:
            keys = ", ".join(change.key for change in to_restart[:5]) + (", ..." if len(to_restart) > 5 else "")
            raise ConflictError(
                f"{name} differs from what runs in {keys}: that needs a restart, and nothing was changed",
                hint=f"let streams finish and restart: tfctl profile apply {name} --restart --drain 60",
            )
        if to_restart:
            request = RestartRequest(drain_s=drain_s, profile=name)
            operation = client.post("/v1/engine/restart", request, OperationDocument)
            with reporter(session) as report:
                follow(client, operation, report, session.options.timeout_s)
            document.restarted = True
        elif live:
            body = TuneRequest(changes={change.key.removeprefix("tunables."): change.new for change in live})
            client.patch("/v1/tunables", body, TunablesDocument)
    _show(session, document)


def _live_changes(document: TunablesDocument, new: dict[str, object]) -> tuple[list[ProfileChange], list[str]]:
    """What is to be tuned; and what is held by something stronger than a profile."""
    tunables = new["tunables"]
    assert isinstance(tunables, dict)
    changes, skipped = [], []
    for row in document.tunables:
        told = tunables.get(row.key)
        wanted = row.default if told is None else told
        if wanted == row.value:
            continue
        if row.origin in _HELD_ABOVE:
            skipped.append(row.key)
        else:
            changes.append(ProfileChange(key=f"tunables.{row.key}", old=row.value, new=wanted, applies=row.applies))
    return changes, skipped


def _show(session: Session, document: ProfileDiffDocument) -> None:
    if session.as_json:
        write_json(document)
        return
    if session.options.quiet:
        return
    for line in change_lines(document.changes, session.look):
        write_line(line)
    if document.skipped:
        note(f"kept, since settings or --persist stand above profiles: {', '.join(document.skipped)} (see: tfctl tune)")
    if document.restarted:
        write_line(f"restarted under {document.new}")
    elif not document.changes:
        write_line(f"nothing to change: the engine works as {document.new} says")
