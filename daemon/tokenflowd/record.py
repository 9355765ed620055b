"""`engine.json`: which engine is ours, so that a daemon that comes after a crash finds it."""

import os
from pathlib import Path

import msgspec

from tokenflowd import processes


class EngineRecord(msgspec.Struct, kw_only=True):
    pid: int
    start_ticks: int
    group: int
    link_folder: str
    profile: str
    daemon_pid: int
    daemon_start_ticks: int

    def is_orphan(self) -> bool:
        """True when the daemon that started the engine has ended."""
        return not processes.is_same_process(self.daemon_pid, self.daemon_start_ticks)

    def owns_group(self) -> bool:
        """False once the pid belongs to somebody else. A group's number stays taken for as long as it has members."""
        ticks = processes.start_ticks(self.pid)
        return ticks is None or (ticks == self.start_ticks and processes.user_id(self.pid) in (os.getuid(), None))


def write(path: Path, record: EngineRecord) -> None:
    """Whole or not at all: a reader never sees half a record."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    draft.replace(path)


def read(path: Path) -> EngineRecord | None:
    """None without a record, and for one that cannot be read: it names no process for certain."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=EngineRecord)
    except (OSError, msgspec.DecodeError):
        return None


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)
