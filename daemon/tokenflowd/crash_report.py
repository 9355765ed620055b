"""What is kept of an engine that ended by itself: one file a crash, the last few of them.

Ids, counts, times and our own words only: neither the engine's log nor any text of a request.
"""

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tokenflow.events import EventRow
from tokenflow.version import __version__
from tokenflow.wire import Capacity, Quality, RequestRow, Transfers
from tokenflowd.engine_process import EngineProcess
from tokenflowd.failure import Death

KEPT_REPORTS = 5
KEPT_EVENTS = 200


class CrashReport(msgspec.Struct, kw_only=True):
    """`step_age_s`: between the last step and the end. `requests`: those that were live in the last telemetry."""

    schema: str = "tokenflow.crash/1"
    version: str = __version__
    at: str
    reason: str
    role: str
    pid: int
    exit_code: int | None
    profile: str
    engine_version: str | None
    adopted: bool
    uptime_s: float
    step_count: int | None
    step_age_s: float | None
    capacity: Capacity
    transfers: Transfers
    quality: Quality
    requests: list[RequestRow]
    events: list[EventRow]


def of(engine: EngineProcess, death: Death, reason: str, events: list[EventRow], now_s: float) -> CrashReport:
    """`events`: the last ones, of the engine and of the daemon."""
    telemetry = engine.telemetry
    last_step_s = telemetry.last_step_s if telemetry else None
    return CrashReport(
        at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        reason=reason,
        role=death.role.value,
        pid=death.pid,
        exit_code=death.exit_code,
        profile=engine.plan.profile.name,
        engine_version=telemetry.engine_version if telemetry else None,
        adopted=engine.is_adopted,
        uptime_s=round(now_s - engine.started_s, 3),
        step_count=telemetry.step_count if telemetry else None,
        step_age_s=None if last_step_s is None else round(max(0.0, now_s - last_step_s), 3),
        capacity=telemetry.capacity if telemetry else Capacity(),
        transfers=telemetry.transfers if telemetry else Transfers(),
        quality=telemetry.quality if telemetry else Quality(),
        requests=[row for row in engine.requests.rows() if row.state.is_live],
        events=events[-KEPT_EVENTS:],
    )


def keep(folder: Path, report: CrashReport) -> Path:
    """Writes it and removes the oldest above `KEPT_REPORTS`. Raises OSError where that cannot be done."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"crash-{report.at.replace(':', '').replace('.', '-')}.json"
    draft = path.with_name(f".{path.name}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(report)))
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    for old in sorted(folder.glob("crash-*.json"))[:-KEPT_REPORTS]:
        old.unlink(missing_ok=True)
    return path
