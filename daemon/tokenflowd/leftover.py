"""The engine of a daemon that has ended: nobody watches it any more, and it holds port and memory.

The next daemon takes it over where it can (`engine_record.find_adoptable`); this is for the rest, and for `tfctl stop`.
"""

import asyncio
import shutil
from pathlib import Path

import structlog

from tokenflow.errors import OperationError
from tokenflow.wire import LeftoverEngine
from tokenflowd import processes, record, shared_memory
from tokenflowd.record import EngineRecord

log = structlog.get_logger()
_GRACE_S = 3.0


def find(record_path: Path) -> LeftoverEngine | None:
    """None without a record, while the daemon that wrote it lives, and once no process of the engine is left."""
    entry = record.read(record_path)
    if entry is None or not entry.is_orphan() or not entry.owns_group():
        return None
    left = processes.engine_processes(entry.group, Path(entry.link_folder))
    if not left:
        return None
    if entry.pid not in left:
        return LeftoverEngine(pid=min(left), profile=entry.profile)
    return LeftoverEngine(pid=entry.pid, profile=entry.profile, state=entry.phase)


async def end(record_path: Path) -> LeftoverEngine | None:
    """Ends what `find` finds, and removes the files that it and its daemon have left, record included.

    Raises OperationError if something of it cannot be ended; the record stays then.
    """
    found = find(record_path)
    entry = record.read(record_path)
    if entry is None or not entry.is_orphan():
        return None
    left = await _end_processes(entry) if found is not None else set()
    if left:
        pids = " ".join(map(str, sorted(left)))
        raise OperationError(f"processes of a leftover engine cannot be ended: {pids}", hint=f"ps -fp {pids}")
    link_folder = Path(entry.link_folder)
    if link_folder.name.startswith("link-"):
        shutil.rmtree(link_folder, ignore_errors=True)
    record.remove(record_path)
    return found


async def _end_processes(entry: EngineRecord) -> set[int]:
    link_folder = Path(entry.link_folder)
    known = processes.with_start_ticks(processes.descendants(entry.pid))
    shared = shared_memory.mapped_by({*known, *processes.engine_processes(entry.group, link_folder)})
    left = await processes.end_processes(entry.group, link_folder, known, _GRACE_S)
    log.warning("leftover_engine_ended", pid=entry.pid, profile=entry.profile, left=sorted(left))
    if not left:
        await asyncio.to_thread(shared_memory.remove_unused, shared)
    return left
