"""The systemd files of this installation: what they hold, where they lie, and putting them there."""

import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from tfctl.host_documents import FileState, ServiceFile
from tokenflow.errors import HostError, OperationError, PermissionDeniedError
from tokenflow.locations import systemd_folder

SERVICE, SOCKET = "tokenflowd.service", "tokenflowd.socket"
_PLACES = {
    SERVICE: "etc/systemd/system/tokenflowd.service",
    SOCKET: "etc/systemd/system/tokenflowd.socket",
    "tokenflow.sysusers.conf": "etc/sysusers.d/tokenflow.conf",
    "tokenflow.tmpfiles.conf": "etc/tmpfiles.d/tokenflow.conf",
}
_SHIPPED_COMMAND = "/usr/bin/tokenflowd"
_COMMAND_LIMIT_S = 90.0


def daemon_program() -> str:
    """The daemon of this installation, as ExecStart wants it."""
    script = Path(sys.executable).parent / "tokenflowd"
    return str(script) if script.is_file() else f"{sys.executable} -m tokenflowd.main"


def render() -> dict[str, str]:
    """The text of each file for this installation, by its shipped name."""
    texts = {name: (systemd_folder() / name).read_text(encoding="utf-8") for name in _PLACES}
    texts[SERVICE] = texts[SERVICE].replace(_SHIPPED_COMMAND, daemon_program())
    if _is_in_a_home(Path(sys.prefix)):
        texts[SERVICE] = texts[SERVICE].replace("ProtectHome=yes", "ProtectHome=read-only")
    return texts


def _is_in_a_home(path: Path) -> bool:
    return path.resolve().is_relative_to("/home")


def files(root: Path) -> list[ServiceFile]:
    """Each file with its place below `root`, and whether it is there as it should be."""
    return [
        ServiceFile(path=str(root / place), state=_state(root / place, text), text=text)
        for place, text in ((_PLACES[name], text) for name, text in render().items())
    ]


def _state(path: Path, text: str) -> FileState:
    try:
        return FileState.SAME if path.read_text(encoding="utf-8") == text else FileState.DIFFERS
    except FileNotFoundError:
        return FileState.ABSENT
    except (OSError, UnicodeDecodeError):
        return FileState.DIFFERS


def install(root: Path) -> None:
    """Writes the files below `root`. Raises HostError where the service could not run what is installed here."""
    if root == Path("/"):
        _check_reachable(Path(sys.executable))
    for file in files(root):
        path = Path(file.path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f".{path.name}.new")
            draft.write_text(file.text, encoding="utf-8")
            draft.chmod(0o644)
            draft.replace(path)
        except OSError as error:
            raise _unwritable(path, error) from error


def remove(root: Path) -> None:
    """Removes the files; those that are not there are no error."""
    for file in files(root):
        try:
            Path(file.path).unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(Path(file.path), error) from error


def _unwritable(path: Path, error: OSError) -> Exception:
    if isinstance(error, PermissionError):
        return PermissionDeniedError(f"may not write {path}", hint="as root: sudo tfctl service install")
    return OperationError(f"cannot write {path}: {error.strerror}", hint="tfctl service show")


def _check_reachable(program: Path) -> None:
    """The service runs as a user of its own, who must be able to enter every folder on the way."""
    for folder in [*reversed(program.parents)]:
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise HostError(
                f"the service's user could not run {program}: {folder} is closed to others",
                hint="install TokenFlow where everybody may read it, such as /opt/tokenflow, and run that tfctl",
            )


def is_systemd_running() -> bool:
    return Path("/run/systemd/system").is_dir()


def run_all(commands: list[list[str]]) -> list[str]:
    """Runs them one after the other; returns them as text. Raises HostError or
    OperationError for the first that fails."""
    done = []
    for command in commands:
        if shutil.which(command[0]) is None:
            raise HostError(f"there is no {command[0]} on this machine", hint="tfctl service show prints the files")
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_COMMAND_LIMIT_S, check=False
        )
        if result.returncode != 0:
            detail = " ".join(result.stderr.split()) or f"exit code {result.returncode}"
            raise OperationError(f"{shlex.join(command)}: {detail}", hint=f"journalctl -u {SERVICE} -n 50")
        done.append(shlex.join(command))
    return done


def require_root() -> None:
    """Raises PermissionDeniedError."""
    if os.geteuid() != 0:
        raise PermissionDeniedError("this changes files of the system", hint="as root: sudo tfctl service install")
