"""Brings a daemon up: the unit where it is installed and ours to start, else a process of the user's own."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from tfctl.client import Client, answers, daemon_ended
from tfctl.session import Session
from tokenflow.errors import (
    ConfigurationError,
    HostError,
    OperationError,
    PermissionDeniedError,
    TimedOutError,
    TokenFlowError,
)
from tokenflow.locations import (
    check_socket_path,
    ensure_private_folder,
    socket_candidates,
    user_runtime_folder,
    user_socket,
    user_state_folder,
)

UNIT = "tokenflowd.service"
START_LIMIT_S = 20.0
_STOP_LIMIT_S = 40.0
_LOST_RACE, _RACE_LIMIT_S = 1, 1.0
_LOG_MOST_BYTES = 8 * 1024 * 1024
_REAP_LIMIT_S = 1.0  # between the end of a process's sockets and of the process
_FAREWELL = re.compile(r"tokenflowd: (?P<message>.*?)(?: \((?P<hint>[^()]*)\))?")
_NEEDED_MODULES = ("tokenflowd.main", "aiohttp", "zmq", "structlog", "psutil", "pydantic_settings")
_UNIT_FOLDERS = (Path("/etc/systemd/system"), Path("/usr/local/lib/systemd/system"), Path("/usr/lib/systemd/system"))


def daemon_log() -> Path:
    """Where a daemon that `tfctl start` brought up writes its own log."""
    return user_state_folder() / "daemon.log"


def daemon_command(socket: Path) -> list[str]:
    """The command line of a daemon of the user's own, which ends with its engine."""
    return [sys.executable, "-m", "tokenflowd.main", "--on-demand", "--socket", str(socket.absolute())]


class SpawnedDaemon:
    """A daemon process that this command has started and may have to end again."""

    def __init__(self, process: "subprocess.Popen[bytes]", socket: Path, log: Path, log_start_bytes: int) -> None:
        self.socket = socket
        self._process = process
        self._log = log
        self._log_start_bytes = log_start_bytes

    def wait_ready(self, limit_s: float) -> None:
        """Until the socket answers. Raises what the daemon died of, or TimedOutError (and ends it)."""
        until_s = time.monotonic() + limit_s
        while not answers(self.socket):
            exit_code = self._process.poll()
            if exit_code is not None:
                if exit_code == _LOST_RACE and self._answers_soon():
                    return
                raise self._death(exit_code)
            if time.monotonic() > until_s:
                self.end()
                raise TimedOutError(
                    f"the daemon did not answer at {self.socket} within {limit_s:g} s",
                    hint=f"read its log: tail {self._log}",
                )
            time.sleep(0.02)

    def _answers_soon(self) -> bool:
        """Two starts at once: the other one's daemon won, and is about to answer."""
        until_s = time.monotonic() + _RACE_LIMIT_S
        while time.monotonic() < until_s:
            if answers(self.socket):
                return True
            time.sleep(0.02)
        return False

    def end(self) -> None:
        """Ends it, politely first."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ending(self) -> TokenFlowError | None:
        """How it ended after it had been ready, or None if it still runs."""
        try:
            exit_code = self._process.wait(_REAP_LIMIT_S)
        except subprocess.TimeoutExpired:
            return None
        how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
        last = last_words(self._log_lines())
        return daemon_ended(f"{how}; its last words: {last}" if last else how)

    def _death(self, exit_code: int) -> TokenFlowError:
        return explain_death(self._log_lines(), exit_code, self._log)

    def _log_lines(self) -> list[str]:
        """What it has written, without what older ones left in the file."""
        with self._log.open("rb") as file:
            file.seek(self._log_start_bytes)
            return file.read().decode(errors="replace").splitlines()


def last_words(lines: list[str]) -> str:
    """The last line that says something; of a JSON line its event alone."""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    try:
        entry = msgspec.json.decode(last)
    except msgspec.DecodeError:
        return last
    return str(entry.get("event", last)) if isinstance(entry, dict) else last


def explain_death(lines: list[str], exit_code: int, log: Path) -> TokenFlowError:
    """The error that made the daemon exit, as it printed it last; else its exit code or signal."""
    kind = {77: PermissionDeniedError, 78: ConfigurationError}.get(exit_code, OperationError)
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    told = _FAREWELL.fullmatch(last)
    if told is not None and exit_code > 0:
        return kind(told["message"], hint=told["hint"] or f"read its log: tail {log}")
    how = f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
    message = f"the daemon {how} while it started" + (f": {last}" if last else "")
    return kind(message, hint=f"read its log: tail {log}")


def bring_up(session: Session) -> tuple[Client, SpawnedDaemon | None]:
    """A client of a daemon that runs now. The second value is the process, if one had to be spawned."""
    explicit = session.options.socket
    if explicit is None and _unit_is_ours():
        return Client(_start_unit(), session.options.timeout_s), None
    spawned = _spawn(user_socket() if explicit is None else explicit, is_explicit=explicit is not None)
    try:
        spawned.wait_ready(START_LIMIT_S)
    except KeyboardInterrupt:
        spawned.end()
        raise
    return Client(spawned.socket, session.options.timeout_s), spawned


def _unit_is_ours() -> bool:
    is_installed = Path("/run/systemd/system").is_dir() and any((folder / UNIT).exists() for folder in _UNIT_FOLDERS)
    return is_installed and os.geteuid() == 0


def _start_unit() -> Path:
    socket = socket_candidates()[0]
    done = subprocess.run(
        ["systemctl", "--no-ask-password", "start", UNIT], capture_output=True, text=True, check=False
    )
    until_s = time.monotonic() + START_LIMIT_S
    while done.returncode == 0 and time.monotonic() < until_s:
        if answers(socket):
            return socket
        time.sleep(0.05)
    detail = " ".join(done.stderr.split()) or f"it does not answer at {socket}"
    raise OperationError(f"{UNIT} did not start: {detail}", hint=f"see why: journalctl -u {UNIT} -n 50")


def _spawn(socket: Path, *, is_explicit: bool) -> SpawnedDaemon:
    _check_installed()
    check_socket_path(socket)
    if not is_explicit:
        ensure_private_folder(user_runtime_folder())
    log = daemon_log()
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        _turn_over(log)
        with log.open("ab") as stream:
            log_start_bytes = stream.tell()
            process = subprocess.Popen(
                daemon_command(socket),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                close_fds=True,
            )
    except OSError as error:
        raise HostError(
            f"cannot start the daemon: {error.strerror}: {error.filename or log}",
            hint="make the folder writable, or choose another one with XDG_STATE_HOME",
        ) from error
    return SpawnedDaemon(process, socket, log, log_start_bytes)


def _turn_over(log: Path) -> None:
    """A large log of former daemons goes aside; the one before it goes."""
    if log.exists() and log.stat().st_size > _LOG_MOST_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))


def _check_installed() -> None:
    missing = [name for name in _NEEDED_MODULES if not _has_module(name)]
    if missing:
        raise HostError(
            f"the daemon's packages are not installed here (missing: {', '.join(missing)})",
            hint=f"install them: {sys.executable} -m pip install 'tokenflow-serving[daemon]'",
        )


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
