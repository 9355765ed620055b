"""`tfctl tune`"""

from pathlib import Path
from typing import Annotated

import typer

from tfctl.options import Command, seconds
from tfctl.output import write_json, write_line
from tfctl.session import Session
from tfctl.views.tunables import changed_lines, table
from tokenflow.errors import UsageError
from tokenflow.tuning import ALL_KEYS, TunablesDocument, TuneRequest

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=Command)
def tune(
    ctx: typer.Context,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", show_default=False, help="New values; without any, show all."),
    ] = None,
    persist: Annotated[
        bool, typer.Option("--persist", show_default=False, help="Keep them over restarts; needs no engine.")
    ] = False,
    reset: Annotated[
        bool,
        typer.Option(
            "--reset", show_default=False, help="Back to what profile and settings say: the KEYs named, or all."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", show_default=False, help="Check them and show what would be in force.")
    ] = False,
    if_revision: Annotated[
        int | None,
        typer.Option("--if-revision", metavar="N", min=0, help="Only if nobody has changed anything since N."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", show_default=False, help="Show what they would have done; change nothing.")
    ] = False,
    over_s: Annotated[
        float, typer.Option("--over", metavar="S", callback=seconds, help="Seconds that --compare watches for.")
    ] = 10.0,
    recording: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", show_default=False, help="Compare on a recording of tfctl top."),
    ] = None,
) -> None:
    """Show or change the policy's values.

    All of the new values are put in force, or none. They hold until the engine is stopped, or for good with --persist.

    --compare replays what it sees through the policy, once with the values in force and once with the new ones. Each
    look is judged as it was: the counts compare two settings, and are no forecast.
    """
    session = Session(ctx)
    words = settings or []
    if compare:
        _compare(session, words, over_s, recording)
        return
    if recording is not None:
        raise UsageError("--from goes with --compare", hint="tfctl tune safety_factor=3 --compare --from FILE")
    changes = parse_changes([word for word in words if not reset or "=" in word])
    forgotten = _forgotten(words) if reset else []
    if not changes and not reset and (dry_run or persist or if_revision is not None):
        raise UsageError("there is nothing to change", hint="tfctl tune --dry-run quantum_s=2")
    client = session.client()
    if changes or reset:
        body = TuneRequest(changes=changes, if_revision=if_revision, dry_run=dry_run, persist=persist, reset=forgotten)
        document = client.patch("/v1/tunables", body, TunablesDocument)
    else:
        document = client.get("/v1/tunables", TunablesDocument)
    session.warn_if_other_version(client)
    if session.as_json:
        write_json(document)
        return
    for line in changed_lines(document, [*changes, *forgotten]) if changes or reset else table(document, session.look):
        write_line(line)


def _compare(session: Session, words: list[str], over_s: float, recording: Path | None) -> None:
    from tfctl.compare import carry_out

    changes = parse_changes(words)
    if not changes:
        raise UsageError("there is nothing to compare", hint="tfctl tune safety_factor=3 --compare")
    carry_out(session, changes, over_s, recording)


def _forgotten(words: list[str]) -> list[str]:
    """The keys to reset. None named: all."""
    return [word.strip() for word in words if "=" not in word] or [ALL_KEYS]


def parse_changes(settings: list[str]) -> dict[str, object]:
    """By key; the engine knows the types. Raises UsageError with every word that is no KEY=VALUE, or is said twice."""
    changes: dict[str, object] = {}
    problems = []
    for word in settings:
        key, equals, value = word.partition("=")
        key = key.strip()
        if not equals or not key:
            problems.append(f"{word!r} is not KEY=VALUE")
        elif key in changes:
            problems.append(f"{key} is given twice")
        changes[key] = value.strip()
    if problems:
        raise UsageError("; ".join(problems), hint="tfctl tune quantum_s=2", field="settings")
    return changes
