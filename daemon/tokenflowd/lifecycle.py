"""The life of the engine, one step at a time. Who may call for which step, and when, is the supervisor's business.

    stopped ── start ──► starting ──► serving ── stop ──► draining ──► stopped
                            │            │                   │
                            └────────────┴── a process died ─┴──► failed ── start ──► starting

`busy` and `wedged` are `serving` with a long step; they are judged when somebody asks (`observation`).
"""

import asyncio
import shutil
import time
from collections.abc import Callable
from typing import Any

import structlog

from tokenflow.errors import ConfigurationError, EngineFailedError, OperationError, TimedOutError
from tokenflow.events import EventKind, Term
from tokenflow.wire import EngineState
from tokenflowd import crash_report, engine_record, failure, logcontext, logfile, plan, preflight, readiness, record
from tokenflowd.changes import Changes
from tokenflowd.draining import Drain
from tokenflowd.engine_process import EngineProcess
from tokenflowd.event_book import EventBook
from tokenflowd.failure import Death, Role
from tokenflowd.paths import DaemonPaths
from tokenflowd.plan import EnginePlan
from tokenflowd.preflight import Report
from tokenflowd.record import EngineRecord
from tokenflowd.settings import Settings
from tokenflowd.tunable_levels import TunableLevels
from tokenflowd.tuned_file import TunedFile

log = structlog.get_logger()
_CRASH_GRACE_S = 2.0
_LOG_LINES_READ = 400
_LOG_LOOK_S = 5.0


class EngineLifecycle:
    """Holds at most one engine. `phase` is its state but for `busy` and `wedged`."""

    def __init__(self, settings: Settings, paths: DaemonPaths, changes: Changes, events: EventBook) -> None:
        self.phase = EngineState.STOPPED
        self.reason: str | None = None
        self.engine: EngineProcess | None = None
        self.plan: EnginePlan | None = None
        self.levels = TunableLevels(settings.tunables, TunedFile(paths.tuned))
        self.settings = settings
        self._paths = paths
        self._changes = changes
        self._events = events
        self._guard: asyncio.Task[None] | None = None
        self._is_released = False
        self.on_failure: Callable[[], None] | None = None  # of an engine that had served, once nothing is left of it

    def apply(self, settings: Settings) -> None:
        """New settings, the host's tunables among them: they hold for the next engine."""
        self.settings = settings
        tuned_now = self.levels.tuned_now
        self.levels = TunableLevels(settings.tunables, TunedFile(self._paths.tuned))
        self.levels.tuned_now = tuned_now

    def set_phase(self, phase: EngineState, reason: str | None = None) -> None:
        if (phase, reason) != (self.phase, self.reason):
            is_new_failure = phase is EngineState.FAILED and self.phase is not EngineState.FAILED
            self.phase, self.reason = phase, reason
            log.info("engine_state", state=phase.value, reason=reason)
            if is_new_failure:
                self._events.note(EventKind.ENGINE_FAILED, reason=reason)
            self._changes.notify()

    async def check(self, draft: EnginePlan, report: Report) -> None:
        """What can be checked while another engine still runs."""
        if not self.settings.engine_command:
            await preflight.check_packages_and_model(draft, report)

    async def start(self, draft: EnginePlan, report: Report) -> EngineProcess:
        """Returns a serving engine. Raises TokenFlowErrors; cancelling it ends what it has started."""
        await self._end_of_guard()
        before = (self.phase, self.reason)
        self.plan = draft
        self.set_phase(EngineState.STARTING)
        try:
            self.plan = await preflight.check(draft, report, is_engine_ours=not self.settings.engine_command)
            engine = self._spawn(self.plan)
        except ConfigurationError:
            self.set_phase(*before)  # nothing has happened
            raise
        except BaseException:
            self.set_phase(EngineState.STOPPED)
            raise
        return await self._bring_into_service(engine, report)

    async def _bring_into_service(self, engine: EngineProcess, report: Report) -> EngineProcess:
        try:
            await self._wait_until_serving(engine, report)
        except TimedOutError as error:
            await self._end(engine, EngineState.FAILED, error.message, grace_s=_CRASH_GRACE_S, is_polite=False)
            raise
        except asyncio.CancelledError:
            if not self._is_released:  # else the daemon ends, its link was closed under us, and the engine goes on
                await self._end(engine, EngineState.STOPPED, None, grace_s=_CRASH_GRACE_S, is_polite=False)
            raise
        engine.remember_descendants()
        engine.watch_children()
        self._take_into_service(engine)
        return engine

    def _take_into_service(self, engine: EngineProcess) -> None:
        engine.serving_since_s = time.monotonic()
        self.set_phase(EngineState.SERVING)
        self.note()
        self._guard = logcontext.detached(self._fail_on_death(engine))

    def _spawn(self, plan_: EnginePlan) -> EngineProcess:
        settings = plan.plugin_settings(plan_.profile, self.levels.above_profile(plan_.profile))
        link_folder = self._paths.make_link_folder()
        environment = plan.environment(plan_.profile, settings, link_folder)
        command = plan_.command(self.settings.engine_command)
        try:
            engine = EngineProcess.spawn(plan_, command, environment, link_folder, self._paths.engine_log, self._events)
        except BaseException as error:
            shutil.rmtree(link_folder, ignore_errors=True)
            if not isinstance(error, OSError):
                raise
            raise OperationError(
                f"cannot run {command[0]} or write its log: {error}", hint="tfctl engine show"
            ) from error
        self.engine = engine
        self.note()
        log.info("engine_spawned", pid=engine.pid, profile=plan_.profile.name, url=plan_.url)
        self._changes.notify()
        return engine

    def note(self, drain_until_s: float | None = None) -> None:
        """Writes down what the next daemon has to know. A full disk must not cost the engine."""
        if self.engine is None:
            return
        try:
            record.write(self._paths.record, engine_record.of(self.engine, self.phase, drain_until_s))
        except OSError as error:
            log.warning("record_unwritable", path=str(self._paths.record), problem=error.strerror)

    def adopt(self, entry: EngineRecord, plan_: EnginePlan) -> EngineProcess:
        """Takes over an engine whose daemon has ended. What it was in the middle of is the supervisor's to go on with.

        A stream notices nothing: the engine does not know that it has another daemon.
        """
        engine = EngineProcess.adopt(plan_, entry, self._events)
        self.engine, self.plan = engine, plan_
        log.info("engine_adopted", pid=engine.pid, profile=plan_.profile.name, url=plan_.url, phase=entry.phase.value)
        terms: dict[str, Term] = {"profile": plan_.profile.name, "pid": engine.pid, "phase": entry.phase.value}
        self._events.note(EventKind.ENGINE_ADOPTED, terms=terms)
        if entry.phase is EngineState.STARTING:
            self.set_phase(EngineState.STARTING)
        else:
            self._take_into_service(engine)
        return engine

    async def go_on_starting(self, engine: EngineProcess, report: Report) -> EngineProcess:
        """Of an adopted engine that did not serve yet: as the rest of `start`."""
        return await self._bring_into_service(engine, report)

    async def _wait_until_serving(self, engine: EngineProcess, report: Report) -> None:
        ready = asyncio.create_task(
            readiness.wait_until_serving(engine, self._paths.engine_log, self.settings.start_limit_s, report)
        )
        try:
            waits: list[asyncio.Future[Any]] = [ready, engine.death]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not engine.death.done():
                ready.result()
                return
        finally:
            ready.cancel()
            await asyncio.gather(ready, return_exceptions=True)
        reason = await self._fail(engine, engine.death.result())
        raise EngineFailedError(reason, hint=failure.hint(str(self._paths.engine_log)))

    async def _fail_on_death(self, engine: EngineProcess) -> None:
        turning = asyncio.create_task(self._turn_log_over())
        try:
            death = await asyncio.shield(engine.death)
        finally:
            turning.cancel()
        await self._fail(engine, death)
        if self.on_failure is not None:
            self.on_failure()

    async def _turn_log_over(self) -> None:
        while True:
            await asyncio.sleep(_LOG_LOOK_S)
            limit_bytes = self.settings.engine_log_limit_bytes
            if await asyncio.to_thread(logfile.turn_over, self._paths.engine_log, limit_bytes):
                log.info("engine_log_turned_over", path=str(self._paths.engine_log))

    async def _fail(self, engine: EngineProcess, death: Death) -> str:
        self.levels.tuned_now |= engine.tuned  # should it be started again
        lines = await asyncio.to_thread(logfile.last_lines, self._paths.engine_log, _LOG_LINES_READ)
        reason = failure.explain(death, lines)
        if "the disk is full" not in reason and failure.is_disk_full(self._paths.engine_log.parent):
            reason += f"; the disk is full: {self._paths.engine_log.parent}"
        await self._keep_report(engine, death, reason)
        self.set_phase(EngineState.FAILED, reason)
        await self._end(engine, EngineState.FAILED, reason, grace_s=_CRASH_GRACE_S, is_polite=False)
        return reason

    async def give_up(self, reason: str) -> None:
        """Ends an engine that serves nothing any more, as if it had failed. Nothing, where none is in service."""
        engine = self.engine
        if engine is None or self.phase is not EngineState.SERVING:
            return
        await self._cancel_guard()
        self.set_phase(EngineState.FAILED, reason)
        self._guard = logcontext.detached(self._give_up(engine, reason))  # who wants to stop it now waits for that
        await asyncio.wait([self._guard])

    async def _give_up(self, engine: EngineProcess, reason: str) -> None:
        await self._keep_report(engine, Death(Role.MAIN, engine.pid, None), reason)
        await self._end(engine, EngineState.FAILED, reason, grace_s=_CRASH_GRACE_S, is_polite=False)
        if self.on_failure is not None:
            self.on_failure()

    async def _keep_report(self, engine: EngineProcess, death: Death, reason: str) -> None:
        report = crash_report.of(engine, death, reason, self._events.last(crash_report.KEPT_EVENTS), time.monotonic())
        try:
            path = await asyncio.to_thread(crash_report.keep, self._paths.crashes, report)
        except OSError as error:
            log.warning("crash_report_unwritable", path=str(self._paths.crashes), problem=error.strerror)
        else:
            log.info("crash_report_kept", path=str(path))

    async def stop(self, drain: Drain, report: Report) -> None:
        """Raises OperationError if something of the engine could not be ended. Without an engine: state `stopped`."""
        engine = self.engine
        if engine is not None and self.phase is EngineState.SERVING:
            await self._cancel_guard()
        else:
            await self._end_of_guard()
        if engine is None or self.engine is None:
            self.set_phase(EngineState.STOPPED)
            return
        self.set_phase(EngineState.DRAINING)
        self.note(drain.until_s)
        await drain.run(engine, report)
        report("ending the engine", None)
        await self._end(engine, EngineState.STOPPED, None, grace_s=self.settings.stop_grace_s, is_polite=True)

    async def _end(
        self, engine: EngineProcess, phase: EngineState, reason: str | None, *, grace_s: float, is_polite: bool
    ) -> None:
        left = await engine.end(grace_s, is_polite=is_polite)
        self.engine = None
        if left:
            reason = f"processes of the engine cannot be ended: {', '.join(map(str, sorted(left)))}"
            self.set_phase(EngineState.FAILED, reason)
            raise OperationError(reason, hint=f"look at them: ps -fp {' '.join(map(str, sorted(left)))}")
        self._forget_record()
        self.set_phase(phase, reason)

    def _forget_record(self) -> None:
        """One that stays, on a file system that has become read-only, names a process that is gone."""
        try:
            record.remove(self._paths.record)
        except OSError as error:
            log.warning("record_unremovable", path=str(self._paths.record), problem=error.strerror)

    async def _cancel_guard(self) -> None:
        if self._guard is not None:
            self._guard.cancel()
            await asyncio.gather(self._guard, return_exceptions=True)
            self._guard = None

    async def _end_of_guard(self) -> None:
        """A failed engine may still be being ended."""
        if self._guard is not None and self.phase is EngineState.FAILED:
            await asyncio.gather(self._guard, return_exceptions=True)
            self._guard = None

    def kill_now(self) -> None:
        """For somebody in a hurry: the engine is killed, its folder and record go, nobody waits."""
        if self.engine is not None:
            self.engine.kill_now()
            shutil.rmtree(self.engine.link_folder, ignore_errors=True)
            self._forget_record()

    async def release(self) -> None:
        """The daemon ends and the engine goes on: only our hands are taken off it."""
        self._is_released = True
        await self._cancel_guard()
        if self.engine is not None:
            await self.engine.close()
