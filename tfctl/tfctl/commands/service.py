"""`tfctl service`"""

from pathlib import Path
from typing import Annotated

import typer

from tfctl import service
from tfctl.client import Client, answers
from tfctl.host_documents import FileState, ServiceDocument
from tfctl.options import Command, group
from tfctl.output import Role, write_json, write_line
from tfctl.session import Session
from tokenflow.errors import ConflictError
from tokenflow.locations import system_socket
from tokenflow.wire import EngineState, StatusDocument

app = group(
    "Run TokenFlow as a service of this host (systemd).\n\n"
    "The daemon then listens on /run/tokenflow/control.sock; members of the group tokenflow may use it. An engine goes "
    "on while the daemon is stopped or restarted."
)

Root = Annotated[
    Path | None,
    typer.Option("--root", metavar="DIR", show_default=False, help="Write below DIR and run nothing (packaging)."),
]
_HERE = Path("/")
_ROLES = {FileState.SAME: Role.GOOD, FileState.ABSENT: Role.FAINT, FileState.DIFFERS: Role.WARN}


@app.command(cls=Command)
def install(
    ctx: typer.Context,
    root: Root = None,
    is_now: Annotated[bool, typer.Option("--now", show_default=False, help="Enable and start it too.")] = False,
) -> None:
    """Write the units for this installation and make the user tokenflow."""
    session = Session(ctx)
    commands: list[list[str]] = []
    if root is None:
        service.require_root()
        commands = [["systemd-sysusers", "tokenflow.conf"], ["systemd-tmpfiles", "--create", "tokenflow.conf"]]
        if service.is_systemd_running():
            commands.append(["systemctl", "daemon-reload"])
            if is_now:
                commands.append(["systemctl", "enable", "--now", service.SOCKET, service.SERVICE])
    service.install(root or _HERE)
    _tell(session, root or _HERE, service.run_all(commands))
    if session.is_chatty and root is None and not is_now:
        write_line(f"next: systemctl enable --now {service.SOCKET} {service.SERVICE}; then: tfctl start PROFILE")


@app.command(cls=Command)
def uninstall(ctx: typer.Context, root: Root = None) -> None:
    """Stop the daemon and remove the units. State, settings and the user stay."""
    session = Session(ctx)
    commands: list[list[str]] = []
    if root is None:
        service.require_root()
        _check_no_engine(session)
        if service.is_systemd_running():
            commands = [["systemctl", "disable", "--now", service.SERVICE, service.SOCKET]]
    done = service.run_all(commands) if _is_installed(root or _HERE) else []
    service.remove(root or _HERE)
    if commands:
        done += service.run_all([["systemctl", "daemon-reload"]])
    _tell(session, root or _HERE, done)


@app.command(cls=Command)
def show(ctx: typer.Context, root: Root = None) -> None:
    """Show the files, and whether they are installed as this installation would write them."""
    session = Session(ctx)
    if session.as_json or session.options.quiet:
        _tell(session, root or _HERE, [])
        return
    for file in service.files(root or _HERE):
        write_line(f"# {session.look.paint(file.path, Role.STRONG)}: {_state(session, file.state)}")
        write_line(file.text)


def _tell(session: Session, root: Path, commands: list[str]) -> None:
    found = service.files(root)
    if session.as_json:
        write_json(ServiceDocument(files=found, commands=commands))
        return
    if session.options.quiet:
        return
    for file in found:
        write_line(f"{_state(session, file.state)}  {file.path}")
    for command in commands:
        write_line(f"{session.look.paint('ran', Role.FAINT)}  {command}")


def _state(session: Session, state: FileState) -> str:
    words = {FileState.SAME: "installed", FileState.ABSENT: "absent", FileState.DIFFERS: "differs"}
    return session.look.paint(words[state], _ROLES[state])


def _is_installed(root: Path) -> bool:
    return any(file.state is not FileState.ABSENT for file in service.files(root))


def _check_no_engine(session: Session) -> None:
    """The engine would go on without anybody to watch it."""
    if not answers(system_socket()):
        return
    status = Client(system_socket(), session.options.timeout_s).get("/v1/status", StatusDocument)
    if status.engine.state not in (EngineState.STOPPED, EngineState.FAILED):
        raise ConflictError(f"its engine is {status.engine.state.value}", hint="end it first: tfctl stop --drain 60")
