"""Why did the engine end? One line for people, naming the root and not the process that followed it."""

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tokenflowd import processes


class Role(StrEnum):
    """The processes of an engine that it cannot do without."""

    MAIN = "main"
    SCHEDULER = "scheduler"
    FRONTEND = "frontend"
    DETOKENIZER = "detokenizer"
    CONTROLLER = "data-parallel controller"

    @classmethod
    def of_title(cls, title: str) -> "Role | None":
        """What SGLang 0.5.23 calls its processes; None for those that it can do without, such as resource trackers."""
        return next((role for start, role in _TITLES.items() if title.startswith(start)), None)


_TITLES = {
    "sglang::scheduler": Role.SCHEDULER,
    "sglang::detokenizer": Role.DETOKENIZER,
    "sglang::data_parallel_controller": Role.CONTROLLER,
}


@dataclass(frozen=True, slots=True)
class Death:
    """A process that was there and is not any more. `exit_code` None: not our child, and reaped by its own parent."""

    role: Role
    pid: int
    exit_code: int | None

    def describe(self) -> str:
        name = "the engine" if self.role is Role.MAIN else f"the engine's {self.role.value}"
        return f"{name} process {self.pid} {processes.describe_exit(self.exit_code)}"


# Written by SGLang 0.5.23's watchdog over its child processes.
_CHILD_CRASHED = re.compile(r"Subprocess (\w+?)_?\d* \(pid=(\d+)\) crashed with exit code (-?\d+)")
_ROLES = {"scheduler": Role.SCHEDULER, "detokenizer": Role.DETOKENIZER}
_ERROR_LINE = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b(?::|$)|out of memory|: error: |^FATAL\b", re.IGNORECASE
)
# What SGLang's main process says about a cause that is told further up.
_CONSEQUENCE = re.compile(r"see the error messages above|died during initialization")
_STAMP = re.compile(r"^\[[^\]]*\]\s*")
# SGLang's own lines about requests (`--log-requests`) hold prompts: nothing of them is ever told.
_OF_A_REQUEST = re.compile(r'^(?:Receive|Finish)(?: OpenAI)?: obj=|"event": "request\.')
_MAX_CHARACTERS = 300
_HOST_CAUSES = {
    re.compile(r"address already in use", re.IGNORECASE): "another process has taken the port",
    re.compile(r"no space left on device", re.IGNORECASE): "the disk is full",
}
_SERVES = re.compile(r"The server is fired up")
_CAUSE_LINES = 60
_DISK_FULL_BYTES = 1_000_000


def explain(death: Death, log_lines: list[str]) -> str:
    """One line. `log_lines`: the end of the engine's log."""
    log_lines = [line for line in log_lines if not _OF_A_REQUEST.search(_STAMP.sub("", line))]
    root = _root(death, log_lines)
    text = root.describe()
    if (cause := _host_cause(log_lines)) is not None:
        return f"{text}: {cause}"  # SGLang kills itself over these: the signal says nothing
    if root.exit_code is not None and root.exit_code < 0:
        return text  # what the log says last has nothing to do with a signal from outside
    error = last_error(log_lines)
    return f"{text}: {error}" if error else text


def _host_cause(log_lines: list[str]) -> str | None:
    """What the machine refused, in the last lines of the log."""
    for line in reversed(log_lines[-_CAUSE_LINES:]):
        if _SERVES.search(line):
            return None  # what was refused before did no harm
        for pattern, cause in _HOST_CAUSES.items():
            if pattern.search(line):
                return f"{cause}: {_STAMP.sub('', line).strip()[:_MAX_CHARACTERS]}"
    return None


def is_disk_full(folder: Path) -> bool:
    """Whether less than 1 MB is left for us; False where that cannot be told."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _DISK_FULL_BYTES


def hint(log: str) -> str:
    return f"look at the log: tfctl logs -n 50 ({log}); then: tfctl start"


def _root(death: Death, log_lines: list[str]) -> Death:
    """SGLang's main process ends itself when a child has crashed: then the child is the root."""
    for line in reversed(log_lines):
        crashed = _CHILD_CRASHED.search(line)
        if crashed is None:
            continue
        pid, code = int(crashed.group(2)), int(crashed.group(3))
        if pid == death.pid or death.role is not Role.SCHEDULER:
            return Death(_ROLES.get(crashed.group(1), Role.MAIN), pid, code)
    return death


def last_error(log_lines: list[str]) -> str | None:
    """The last line that names an error, without its stamp: the end of a traceback, an argument that was refused."""
    fallback = None
    for line in reversed(log_lines):
        text = _STAMP.sub("", line).strip()[:_MAX_CHARACTERS]
        if not _ERROR_LINE.search(text):
            continue
        if not _CONSEQUENCE.search(text):
            return text
        fallback = fallback or text
    return fallback
