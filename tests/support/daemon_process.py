"""The daemon as a process of its own: started, waited for, ended in any case."""

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tokenflow import locations

LIMIT_S = 20.0

COMMAND = [sys.executable, "-m", "tokenflowd.main"]


def run_to_end(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=LIMIT_S)


@contextlib.contextmanager
def running_daemon(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Ended in any case; what it started is ended by the test."""
    socket_path = (
        Path(arguments[arguments.index("--socket") + 1]) if "--socket" in arguments else locations.user_socket()
    )
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE) as process:
        try:
            wait_for(lambda: answers(socket_path) or process.poll() is not None)
            yield process
        finally:
            process.kill()


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def wait_for(condition) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.02)


def runtime_files() -> list[str]:
    return sorted(path.name for path in locations.user_runtime_folder().iterdir())
