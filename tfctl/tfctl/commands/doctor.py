"""`tfctl doctor`"""

from typing import Annotated

import typer

from tfctl.host_documents import Check, CheckState, DoctorDocument
from tfctl.options import Command
from tfctl.output import Look, Role, write_json, write_line
from tfctl.session import Session

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_ROLES = {
    CheckState.PASS: Role.GOOD,
    CheckState.WARN: Role.WARN,
    CheckState.FAIL: Role.BAD,
    CheckState.SKIP: Role.FAINT,
}


@app.command(cls=Command)
def doctor(
    ctx: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", show_default=False, help="Ask for a short stream there: does a proxy hold it back?"
        ),
    ] = None,
) -> None:
    """Check the host, the installation, the daemon and the engine.

    Changes nothing, and works with the daemon down. Each check is pass, warn, fail or skip, with the next step of all
    but a pass. Exit code: 1 where a check has failed.
    """
    session = Session(ctx)
    from tfctl.doctor.run import run

    checks = run(session, url)
    ok = all(check.state is not CheckState.FAIL for check in checks)
    if session.as_json:
        write_json(DoctorDocument(ok=ok, checks=checks))
    else:
        _show(session, checks)
    raise typer.Exit(0 if ok else 1)


def _show(session: Session, checks: list[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        if session.options.quiet and check.state in (CheckState.PASS, CheckState.SKIP):
            continue
        write_line(f"{_word(check, session.look)}  {check.name:<{width}}  {check.message}")
        if check.hint is not None and check.state is not CheckState.SKIP:
            write_line(f"{'':{width + 8}}{session.next_step(check.hint)}")
    if not session.options.quiet:
        counts = [f"{sum(check.state is state for check in checks)} {state.value}" for state in CheckState]
        write_line(session.look.paint(", ".join(counts), Role.FAINT))


def _word(check: Check, look: Look) -> str:
    return look.paint(f"{check.state.value:<4}", _ROLES[check.state])
