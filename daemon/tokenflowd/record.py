"""`engine.json`: which engine is ours and how it was started, so that the next daemon finds it and takes it over.

The file carries a version. An older one is migrated when it is read; a newer one is not touched: see `read`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tokenflow.errors import ConfigurationError
from tokenflow.wire import EngineState
from tokenflowd import processes

RECORD_VERSION = 2


class PlanRecord(msgspec.Struct, kw_only=True):
    """`plan.EnginePlan` in words that outlive a change of its classes."""

    profile: dict[str, Any]  # the whole profile as it was at the start
    extra_arguments: list[str]
    model_path: str
    host: str
    port: int
    device: str
    served_name: str
    server_arguments: list[str]


class EngineRecord(msgspec.Struct, kw_only=True):
    """Stamps are CLOCK_MONOTONIC seconds: they hold for the boot that `boot_id` names, and so do pids."""

    version: int = RECORD_VERSION
    boot_id: str
    pid: int
    start_ticks: int
    group: int
    link_folder: str
    profile: str
    daemon_pid: int
    daemon_start_ticks: int
    started_s: float | None = None
    phase: EngineState = EngineState.STARTING
    has_plugin: bool = False  # its scheduler has been heard
    drain_until_s: float | None = None  # a stop was under way: when it cuts what is still open
    plan: PlanRecord | None = None  # None: written by a daemon that could not yet hand an engine over

    def is_orphan(self) -> bool:
        """True when the daemon that wrote this has ended."""
        return not processes.is_same_process(self.daemon_pid, self.daemon_start_ticks)

    def owns_group(self) -> bool:
        """False once the pid belongs to somebody else. A group's number stays taken for as long as it has members."""
        if self.boot_id != processes.boot_id():
            return False
        ticks = processes.start_ticks(self.pid)
        return ticks is None or (ticks == self.start_ticks and processes.user_id(self.pid) in (os.getuid(), None))

    def is_main_alive(self) -> bool:
        """The main process of this record runs, and is ours."""
        return self.owns_group() and processes.is_same_process(self.pid, self.start_ticks)


def write(path: Path, record: EngineRecord) -> None:
    """Whole or not at all: a reader never sees half a record."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)  # a full disk leaves it empty
        raise


def read(path: Path) -> EngineRecord | None:
    """None without a record, and for one that cannot be read: it names no process for certain.

    Raises ConfigurationError for one that a newer daemon has written: its engine is not ours to judge.
    """
    try:
        table = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        version = int(table.get("version", 1))
        if version > RECORD_VERSION:
            raise ConfigurationError(
                f"{path} was written by a newer tokenflowd (version {version} of the file, this one knows "
                f"{RECORD_VERSION})",
                hint=f"run that tokenflowd again; or, if its engine (pid {table.get('pid')}) has ended: rm {path}",
            )
        for step in _MIGRATIONS[version - 1 :]:
            table = step(table)
        return msgspec.convert(table, EngineRecord)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError, ValueError, TypeError):
        return None


def _from_1(table: dict[str, Any]) -> dict[str, Any]:
    """Version 1 held no boot and no plan: its engine can be found and ended, not taken over."""
    return {**table, "version": 2, "boot_id": processes.boot_id()}


_MIGRATIONS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (_from_1,)
"""The step at index n - 1 makes version n + 1 out of version n."""
assert len(_MIGRATIONS) == RECORD_VERSION - 1


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)
