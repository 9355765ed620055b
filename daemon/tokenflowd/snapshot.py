"""The latest state as documents: built when somebody asks, from what is known now."""

import os
import time
from pathlib import Path
from typing import Protocol

import msgspec

from tokenflow.link import Reply, Telemetry
from tokenflow.policy.states import Mode, Variant
from tokenflow.rows import stall_s_total
from tokenflow.tuning import TunablesDocument
from tokenflow.version import __version__
from tokenflow.wire import (
    API_VERSION,
    EXTENSIONS,
    Alarm,
    Capacity,
    DaemonInfo,
    EngineInfo,
    EngineState,
    Latency,
    ModeDocument,
    PluginState,
    PolicyInfo,
    Quality,
    RequestsDocument,
    StatusDocument,
    Transfers,
    VersionDocument,
)
from tokenflowd import alarms, observation, tunable_rows
from tokenflowd.engine_process import EngineProcess
from tokenflowd.gpus.watch import GpuWatch
from tokenflowd.lifecycle import EngineLifecycle
from tokenflowd.observation import Limits
from tokenflowd.paths import DaemonPaths
from tokenflowd.queries import RequestQuery
from tokenflowd.supervisor import Supervisor


class Scraped(Protocol):
    """Where the metrics are served, and why they are not."""

    url: str | None
    problem: str | None


class Snapshots:
    """Makes documents; keeps nothing."""

    def __init__(
        self,
        supervisor: Supervisor,
        paths: DaemonPaths,
        limits: Limits,
        metrics: Scraped,
        gpus: GpuWatch,
        *,
        on_demand: bool,
    ) -> None:
        self._supervisor = supervisor
        self._paths = paths
        self._limits = limits
        self._metrics = metrics
        self._gpus = gpus
        self._on_demand = on_demand
        self._started_s = time.monotonic()

    def apply(self, limits: Limits) -> None:
        """New settings."""
        self._limits = limits

    @property
    def _lifecycle(self) -> EngineLifecycle:
        return self._supervisor.lifecycle

    def engine_state(self, now_s: float) -> EngineState:
        phase, engine = self._lifecycle.phase, self._lifecycle.engine
        if phase is not EngineState.SERVING or engine is None:
            return phase
        if self._wedge(engine, now_s) is not None:
            return EngineState.WEDGED
        if engine.telemetry is None and engine.has_plugin and engine.serving_since_s is not None:
            return observation.judge_silence(now_s - engine.serving_since_s, self._limits)
        return engine.schedulers.judge(now_s, self._limits, engine.serving_since_s)

    def status(self) -> StatusDocument:
        now_s = time.monotonic()
        engine = self._lifecycle.engine
        telemetry = engine.telemetry if engine else None
        info = self._engine_info(engine, now_s)
        return StatusDocument(
            profile=info.profile,
            daemon=self._daemon_info(now_s),
            engine=info,
            policy=_policy_info(engine),
            capacity=telemetry.capacity if telemetry else Capacity(),
            transfers=telemetry.transfers if telemetry else Transfers(),
            latency=telemetry.latency if telemetry else Latency(),
            quality=_quality(telemetry),
            gpus=self._gpus.gpus,
            alarms=self._alarms(info, telemetry, now_s),
        )

    def requests(self, query: RequestQuery) -> RequestsDocument:
        engine = self._lifecycle.engine
        selected = query.select(engine.requests.rows() if engine else [])
        plan = self._lifecycle.plan
        return RequestsDocument(
            profile=plan.profile.name if engine and plan else None,
            requests=selected if query.limit is None else selected[: query.limit],
            total_count=len(selected),
        )

    def mode(self) -> ModeDocument:
        policy = _policy_info(self._lifecycle.engine)
        return ModeDocument(mode=policy.mode, revision=policy.revision)

    def tunables(self, reply: Reply | None) -> TunablesDocument:
        """With the values of the scheduler's `reply`; without one no engine serves, and there are none."""
        plan = self._lifecycle.plan
        profile = plan.profile if plan is not None and reply is not None else None
        return TunablesDocument(
            profile=profile.name if profile else None,
            revision=reply.revision if reply else 0,
            tunables=tunable_rows.rows(
                reply.tunables if reply else None,
                reply.tuned_keys if reply else [],
                profile,
                self._lifecycle.levels,
            ),
        )

    def version(self) -> VersionDocument:
        return VersionDocument(
            api=API_VERSION,
            daemon=__version__,
            engine=_engine_version(self._lifecycle.engine),
            extensions=list(EXTENSIONS),
        )

    def _daemon_info(self, now_s: float) -> DaemonInfo:
        return DaemonInfo(
            version=__version__,
            api=API_VERSION,
            pid=os.getpid(),
            uptime_s=round(now_s - self._started_s, 3),
            socket=str(self._paths.socket),
            metrics_url=self._metrics.url,
            on_demand=self._on_demand,
        )

    def _engine_info(self, engine: EngineProcess | None, now_s: float) -> EngineInfo:
        state = self.engine_state(now_s)
        info = EngineInfo(state=state, reason=self._lifecycle.reason, log=_existing(self._paths.engine_log))
        plan = self._lifecycle.plan
        if plan is not None and state is not EngineState.STOPPED:
            info.url, info.model, info.profile = plan.url, plan.served_name, plan.profile.name
        operation = self._supervisor.running_operation
        if operation is not None and state in (EngineState.STARTING, EngineState.DRAINING):
            info.progress, info.progress_ratio = operation.progress, operation.progress_ratio
        if engine is None:
            return info
        info.adopted = engine.is_adopted
        info.pid, info.uptime_s = engine.pid, round(now_s - engine.started_s, 3)
        info.version = _engine_version(engine)
        info.plugin, info.plugin_detail = _plugin_info(engine)
        if engine.telemetry is not None:
            info.step_count = engine.telemetry.step_count
            last_step_s = engine.telemetry.last_step_s
            info.step_age_s = None if last_step_s is None else round(max(0.0, now_s - last_step_s), 3)
        return info

    def _alarms(self, info: EngineInfo, telemetry: Telemetry | None, now_s: float) -> list[Alarm]:
        engine = self._lifecycle.engine
        return alarms.alarms_of(
            alarms.Facts(
                info=info,
                limits=self._limits,
                log_path=str(self._paths.engine_log),
                telemetry=telemetry,
                trends=engine.trends if engine else None,
                silence_s=self._silence_s(now_s),
                wants_enforce=self._wants_enforce(),
                wedge=self._wedge(engine, now_s) if engine else None,
                metrics_problem=self._metrics.problem,
                restart_count=self._supervisor.restart_count,
                had_plugin=engine is not None and engine.has_plugin,
            )
        )

    def _wants_enforce(self) -> bool:
        """The profile, or the host, wants the engine to enforce from its start."""
        plan = self._lifecycle.plan
        if plan is None:
            return False
        wanted = self._lifecycle.levels.untuned(plan.profile) | self._lifecycle.levels.persisted()
        return bool(wanted["mode"] == Mode.ENFORCE)

    def _wedge(self, engine: EngineProcess, now_s: float) -> str | None:
        """Why an engine that serves is stuck, where something else than its step counter says so."""
        stopped = engine.stopped()
        if stopped:
            pid, role = next(iter(stopped.items()))
            return f"the engine's {role.value} process {pid} is stopped by a signal: kill -CONT {pid}"
        heard_s = engine.frontend_heard_s
        if heard_s is not None and now_s - heard_s > self._limits.wedged_after_s:
            return f"the engine's HTTP process has not answered for {now_s - heard_s:.0f} s"
        return None

    def _silence_s(self, now_s: float) -> float:
        engine = self._lifecycle.engine
        heard_s = engine.schedulers.heard_s if engine else None
        expected_s = engine.serving_since_s if engine else None
        return now_s - max((stamp for stamp in (heard_s, expected_s) if stamp is not None), default=now_s)


def _quality(telemetry: Telemetry | None) -> Quality:
    if telemetry is None:
        return Quality()
    return msgspec.structs.replace(telemetry.quality, stall_s_total=round(stall_s_total(telemetry), 3))


def _existing(path: Path) -> str | None:
    return str(path) if path.exists() else None


def _engine_version(engine: EngineProcess | None) -> str | None:
    if engine is None:
        return None
    source: Telemetry | Reply | None = engine.telemetry or engine.frontend_reply
    return source.engine_version if source else None


def _plugin_info(engine: EngineProcess) -> tuple[PluginState, str | None]:
    """The worse of what the scheduler and the HTTP process say."""
    reply = engine.frontend_reply
    if reply is not None and reply.plugin is not PluginState.ACTIVE:
        return reply.plugin, reply.plugin_detail
    detail = reply.plugin_detail if reply else None
    if engine.telemetry is not None:
        return engine.telemetry.plugin, engine.telemetry.plugin_detail or detail
    return (reply.plugin if reply else PluginState.ABSENT), detail


def _policy_info(engine: EngineProcess | None) -> PolicyInfo:
    telemetry = engine.telemetry if engine else None
    if engine is None or telemetry is None:
        return PolicyInfo()
    mode, variant, revision = telemetry.mode, telemetry.variant, telemetry.revision
    answered = engine.command_reply
    if answered is not None and answered.revision > revision and answered.mode is not None:
        mode, revision = answered.mode, answered.revision  # newer than the last telemetry
        variant = Variant((answered.tunables or {}).get("variant", variant))
    return PolicyInfo(
        mode=mode,
        variant=variant,
        overload=telemetry.overload,
        revision=revision,
        blocked_by=telemetry.blocked_by,
        fault_count=telemetry.fault_count,
    )
