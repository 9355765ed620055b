"""The engine of a daemon that has ended. What it takes to find and end it is the daemon's knowledge: it is asked.

No daemon runs then, so its program is run for this one question, and only where a record says that there may be one.
"""

import subprocess
import sys
from pathlib import Path

import msgspec

from tfctl.daemon import daemon_log, explain_death
from tokenflow.errors import OperationError, TimedOutError, TokenFlowError
from tokenflow.locations import engine_record, system_socket, user_socket
from tokenflow.wire import LeftoverEngine

_LIMIT_S = 60.0


def find_leftover(explicit: Path | None) -> LeftoverEngine | None:
    """None where there is none, and where the daemon's program cannot tell."""
    for socket in [explicit] if explicit is not None else [None, system_socket()]:
        try:
            found = _ask("show", socket)
        except TokenFlowError:
            continue
        if found is not None:
            return found
    return None


def end_leftover(explicit: Path | None) -> LeftoverEngine | None:
    """What has been ended, with its files; None where there was none. Raises the daemon's error."""
    return _ask("end", explicit)


def leftover_command(action: str, socket: Path) -> list[str]:
    return [sys.executable, "-m", "tokenflowd.main", "--leftover", action, "--socket", str(socket)]


def _has_record(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return False  # the service's state is its group's to read


def _ask(action: str, explicit: Path | None) -> LeftoverEngine | None:
    socket = user_socket() if explicit is None else explicit.expanduser().absolute()
    if not _has_record(engine_record(socket)):
        return None
    command = leftover_command(action, socket)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise TimedOutError(f"looking for a leftover engine took over {_LIMIT_S:g} s", hint="tfctl start") from error
    if done.returncode != 0:
        raise explain_death(done.stderr.decode(errors="replace").splitlines(), done.returncode, daemon_log())
    try:
        return msgspec.json.decode(done.stdout, type=LeftoverEngine | None)
    except msgspec.DecodeError as error:
        raise OperationError(f"{' '.join(command)} gave no sane answer", hint="tfctl start") from error
