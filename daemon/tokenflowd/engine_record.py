"""From a running engine to its record, and from a record to an engine that can be taken over."""

import os
from pathlib import Path

import structlog

from tokenflow.wire import EngineState
from tokenflowd import plan, processes, record
from tokenflowd.engine_process import EngineProcess
from tokenflowd.plan import EnginePlan
from tokenflowd.record import EngineRecord

log = structlog.get_logger()


def of(engine: EngineProcess, phase: EngineState, drain_until_s: float | None) -> EngineRecord:
    """What the next daemon has to know of this engine."""
    return EngineRecord(
        boot_id=processes.boot_id(),
        pid=engine.pid,
        start_ticks=engine.start_ticks,
        group=engine.pid,
        link_folder=str(engine.link_folder),
        profile=engine.plan.profile.name,
        daemon_pid=os.getpid(),
        daemon_start_ticks=processes.start_ticks(os.getpid()) or 0,
        started_s=engine.started_s,
        phase=phase,
        has_plugin=engine.has_plugin,
        drain_until_s=drain_until_s,
        plan=plan.to_record(engine.plan),
    )


def find_adoptable(path: Path) -> tuple[EngineRecord, EnginePlan] | None:
    """An engine without a daemon that can go on under this one: its main process is the one of the record and runs,
    and its link is there. None where there is none. Raises ConfigurationError: see `record.read`."""
    entry = record.read(path)
    if entry is None or not entry.is_orphan() or not entry.is_main_alive():
        return None
    if entry.plan is None or not Path(entry.link_folder).is_dir():
        why = "its record has no plan" if entry.plan is None else "its link folder is gone"
        log.warning("engine_not_adoptable", pid=entry.pid, profile=entry.profile, why=why)
        return None
    return entry, plan.from_record(entry.profile, entry.plan)
