"""Takes the facts of one scrape from the daemon and turns them into text."""

import asyncio
import time
from dataclasses import replace
from typing import Any

from tokenflow import link
from tokenflow.errors import TokenFlowError
from tokenflowd.engine_process import EngineProcess
from tokenflowd.metrics.collector import render
from tokenflowd.metrics.facts import Facts
from tokenflowd.snapshot import Snapshots
from tokenflowd.supervisor import Supervisor

_ASK_LIMIT_S = 1.0
_FRESH_S = 3.0  # a scheduler that has been silent for longer is not asked: the scrape would wait for it


class MetricsExporter:
    """Keeps nothing between two scrapes: counters are the engine's."""

    def __init__(self, supervisor: Supervisor, snapshots: Snapshots) -> None:
        self._supervisor = supervisor
        self._snapshots = snapshots

    async def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """The metrics and their content type, as the client's `Accept` header wants them."""
        engine = self._supervisor.lifecycle.engine
        tunables = await _tunables(engine) if engine is not None else {}
        return render(self._facts(tunables), accept)

    def _facts(self, tunables: dict[str, Any]) -> Facts:
        lifecycle = self._supervisor.lifecycle
        engine, plan = lifecycle.engine, lifecycle.plan
        now_s, heard_s = time.monotonic(), engine.schedulers.heard_s if engine is not None else None
        whole = Facts(
            status=self._snapshots.status(),
            telemetry=engine.telemetry if engine is not None else None,
            telemetry_age_s=None if heard_s is None else max(0.0, now_s - heard_s),
            rows=engine.requests.rows() if engine is not None else [],
            tunables=tunables,
            own_classes=tuple(plan.profile.classes) if engine is not None and plan is not None else (),
        )
        if engine is None or whole.telemetry is None or whole.telemetry.watched_count < 2:
            return whole
        each = engine.schedulers.each
        return replace(whole, schedulers=tuple(whole.of_scheduler(telemetry, now_s) for telemetry in each))


async def _tunables(engine: EngineProcess) -> dict[str, Any]:
    """What is in force, asked for only when it has changed since the scheduler last said it; empty if it does not."""
    telemetry, known = engine.telemetry, engine.tunables_reply
    if telemetry is None:
        return {}
    if known is not None and known.tunables is not None and known.revision >= telemetry.revision:
        return known.tunables
    if time.monotonic() - telemetry.sent_s > _FRESH_S:
        return {}
    try:
        async with asyncio.timeout(_ASK_LIMIT_S):
            reply = await engine.command(link.Ping())
    except (TimeoutError, TokenFlowError):
        return {}
    return reply.tunables or {}
