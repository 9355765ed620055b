"""Takes the operators' wishes about the engine: one operation at a time, and a stop may interrupt a start."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog

from tokenflow.errors import ConflictError, OperationError, TokenFlowError
from tokenflow.events import EventKind, Term
from tokenflow.link import Ping
from tokenflow.wire import EngineState
from tokenflowd import logcontext, plan, wish
from tokenflowd.draining import Drain
from tokenflowd.engine_process import EngineProcess
from tokenflowd.event_book import EventBook
from tokenflowd.lifecycle import EngineLifecycle
from tokenflowd.operations import Operation, OperationKind, Operations
from tokenflowd.plan import EnginePlan
from tokenflowd.profiles import store
from tokenflowd.record import EngineRecord
from tokenflowd.restarts import RestartBook, RestartLimits
from tokenflowd.revival import Revival
from tokenflowd.settings import Settings

log = structlog.get_logger()
_ADOPTION_LIMIT_S = 1.5
_BACKOFF_MOST_S = 60.0
AUTOSTARTED_BY = "the daemon's autostart"
RESTARTED_BY = "the daemon's restart of a failed engine"
_DOING = {
    OperationKind.START: "being started",
    OperationKind.STOP: "being stopped",
    OperationKind.RESTART: "being restarted",
}


class Supervisor:
    """`start`, `stop` and `restart` return at once; the work is done in a task that ends the operation."""

    def __init__(
        self,
        settings: Settings,
        lifecycle: EngineLifecycle,
        operations: Operations,
        events: EventBook,
        wish_path: Path,
    ) -> None:
        self.lifecycle = lifecycle
        self._events = events
        self._settings = settings
        self._operations = operations
        self._operation: Operation | None = None
        self._job: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[EngineProcess] | None = None
        self._drain: Drain | None = None
        self._wanted: EnginePlan | None = None  # by the latest start
        self._is_stop_wanted = False
        self._wish_path = wish_path
        self._revival = Revival(RestartBook(_restart_limits(settings)), lifecycle, self._start_again)
        lifecycle.on_failure = self._on_failure

    @property
    def restart_count(self) -> int:
        """How often a failed engine was started again lately, without anybody asking."""
        return self._revival.count

    @property
    def running_operation(self) -> Operation | None:
        return self._operation if self._operation is not None and self._operation.is_running else None

    def start(self, profile_name: str | None, extra_arguments: list[str], who: str | None) -> Operation:
        """Raises ConflictError while something else is under way or another profile runs; errors of the profile."""
        name = self._settings.default_profile if profile_name is None else profile_name
        running = self.running_operation
        if running is not None:
            is_same = self._wanted is not None and self._wanted.is_for(name, extra_arguments)
            if running.kind is OperationKind.START and is_same:
                return running
            raise _busy_error(running)
        if self.lifecycle.phase is EngineState.SERVING:
            return self._already_serving(name, extra_arguments, who)
        draft = self._wanted = self._draft_anew(name, extra_arguments)
        self._keep_wish(draft)
        return self._begin(OperationKind.START, who, self._starter(draft))

    def stop(self, drain_s: float | None, who: str | None, *, is_wish_kept: bool = False) -> Operation:
        """Never refused. A second stop joins the first one, and cuts its draining short where it asks for less.

        `is_wish_kept`: the next daemon's autostart starts the engine again.
        """
        drain_s = self._settings.drain_s if drain_s is None else drain_s
        self.forget_revival()
        self.lifecycle.levels.tuned_now.clear()
        if not is_wish_kept:
            self._forget_wish()
        running = self.running_operation
        if running is not None and running.kind is OperationKind.STOP:
            if self._drain is not None:
                self._drain.shorten(drain_s)
            return running
        if running is None and self.lifecycle.engine is None:
            self.lifecycle.set_phase(EngineState.STOPPED)
            operation = self._operations.begin(OperationKind.STOP, who)
            operation.finish(already=True)
            return operation
        self._is_stop_wanted = True
        if self._starting is not None:
            self._starting.cancel()
        if self._drain is not None:
            self._drain.shorten(drain_s)
        drain = Drain(drain_s)
        return self._begin(OperationKind.STOP, who, lambda operation: self._stop(operation, drain))

    def restart(
        self, profile_name: str | None, extra_arguments: list[str], drain_s: float | None, who: str | None
    ) -> Operation:
        """Without a profile, the one that ran, with the arguments that it ran with. The new one is checked first."""
        if (running := self.running_operation) is not None:
            raise _busy_error(running)
        last = self.lifecycle.plan
        if profile_name is None and last is not None:
            profile_name = last.profile.name
            extra_arguments = extra_arguments or list(last.extra_arguments)
        name = self._settings.default_profile if profile_name is None else profile_name
        draft = self._draft_anew(name, extra_arguments)
        drain = Drain(self._settings.drain_s if drain_s is None else drain_s)
        return self._begin(OperationKind.RESTART, who, lambda operation: self._restart(operation, draft, drain))

    async def adopt(self, entry: EngineRecord, plan_: EnginePlan) -> None:
        """Takes an engine over, and goes on with the start or the stop that its daemon was in the middle of.

        Returns once the engine has been heard, or a moment later.
        """
        engine = self.lifecycle.adopt(entry, plan_)
        if entry.phase is EngineState.STARTING:
            self._wanted = plan_

            async def go_on(operation: Operation) -> None:
                await self._start(operation, lambda: self.lifecycle.go_on_starting(engine, operation.report))

            self._begin(OperationKind.START, None, go_on)
            return
        await asyncio.gather(engine.wait_heard(_ADOPTION_LIMIT_S), engine.ask_frontend(Ping(), _ADOPTION_LIMIT_S))
        if entry.phase is EngineState.DRAINING:
            remaining_s = 0.0 if entry.drain_until_s is None else entry.drain_until_s - time.monotonic()
            self._go_on_draining(max(0.0, remaining_s))

    def _go_on_draining(self, remaining_s: float) -> None:
        """A stop forgets the wish at once: one that is there during a drain was a restart, or the end of a daemon after
        which autostart would start the engine again."""
        wanted = wish.read(self._wish_path) if self._settings.autostart else None
        if wanted is not None:
            try:
                self.restart(wanted.profile, wanted.engine_args, remaining_s, None)
            except TokenFlowError as error:
                log.warning("restart_not_resumed", code=error.code, message=error.message)
            else:
                return
        self.stop(remaining_s, None)

    def autostart(self) -> None:
        """Starts what somebody has started and nobody has stopped; tries again like after a failure, since a host that
        has just booted may not be ready. What has become impossible is told: `failed`."""
        wanted = wish.read(self._wish_path)
        if wanted is None:
            return
        try:
            operation = self.start(wanted.profile, wanted.engine_args, AUTOSTARTED_BY)
        except TokenFlowError as error:
            log.warning("autostart_failed", profile=wanted.profile, code=error.code, message=error.message)
            reason = f"{wanted.profile} could not be started: {error.message}"
            self.lifecycle.set_phase(EngineState.FAILED, reason + (f" ({error.hint})" if error.hint else ""))
        else:
            self._revival.begin_if_failed(operation, self._wanted)

    def _forget_wish(self) -> None:
        try:
            wish.forget(self._wish_path)
        except OSError as error:  # a file system that has become read-only: a stop is never refused
            log.warning("wish_unremovable", path=str(self._wish_path), problem=error.strerror)

    def _keep_wish(self, draft: EnginePlan) -> None:
        if not self._settings.autostart:
            return
        try:
            wanted = wish.Wish(profile=draft.profile.name, engine_args=list(draft.extra_arguments))
            wish.write(self._wish_path, wanted)
        except OSError as error:  # a full disk: only the next autostart would miss it
            log.warning("wish_unwritable", path=str(self._wish_path), problem=error.strerror)

    def apply(self, settings: Settings) -> None:
        """Takes over new settings: they hold for what is begun from now on."""
        self._settings = settings
        self.lifecycle.apply(settings)
        self._revival.book.limits = _restart_limits(settings)

    async def wait_idle(self) -> None:
        """Returns when no operation runs any more."""
        while self._job is not None and not self._job.done():
            await asyncio.wait([self._job])

    def _on_failure(self) -> None:
        if self.lifecycle.plan is not None and self.running_operation is None:
            self._revival.begin(self.lifecycle.plan, self.lifecycle.reason or "the engine failed")

    def forget_revival(self) -> None:
        """Somebody has asked for something else."""
        self._revival.forget()

    async def _start_again(self, draft: EnginePlan) -> TokenFlowError | None:
        """As an operation of its own. Returns what it has failed with."""
        self._wanted = draft
        operation = self._begin(OperationKind.START, RESTARTED_BY, self._starter(draft))
        await self.wait_idle()
        return operation.error

    def _starter(self, draft: EnginePlan) -> Callable[[Operation], Coroutine[Any, Any, None]]:
        async def work(operation: Operation) -> None:
            await self._start(operation, lambda: self.lifecycle.start(draft, operation.report))

        return work

    def _draft_anew(self, name: str, extra_arguments: list[str]) -> EnginePlan:
        """As somebody asks for it: without what was tuned meanwhile. Raises as `_draft` does, and has changed nothing
        then: an engine that is to be started again still is."""
        tuned_now = dict(self.lifecycle.levels.tuned_now)
        self.lifecycle.levels.tuned_now.clear()
        try:
            draft = self._draft(name, extra_arguments)
        except TokenFlowError:
            self.lifecycle.levels.tuned_now.update(tuned_now)
            raise
        self.forget_revival()
        return draft

    def _draft(self, name: str, extra_arguments: list[str]) -> EnginePlan:
        profile = store.load(name)
        self.lifecycle.levels.above_profile(profile)
        return plan.make(profile, extra_arguments)

    def _already_serving(self, name: str, extra_arguments: list[str], who: str | None) -> Operation:
        running = self.lifecycle.plan
        assert running is not None
        is_other_profile = running.profile.name != name
        if is_other_profile:
            store.load(name)  # a restart would not help where there is no such profile
        if is_other_profile or (extra_arguments and not running.is_for(name, extra_arguments)):
            wanted = f"profile {name}" if is_other_profile else "a change of its arguments"
            raise ConflictError(
                f"the engine is running profile {running.profile.name}; {wanted} needs a restart",
                hint=f"tfctl restart {name}" + (f" -- {' '.join(extra_arguments)}" if extra_arguments else ""),
            )
        operation = self._operations.begin(OperationKind.START, who)
        operation.finish(already=True, url=running.url, profile=name)
        return operation

    def _begin(
        self, kind: OperationKind, who: str | None, work: Callable[[Operation], Coroutine[Any, Any, None]]
    ) -> Operation:
        operation = self._operations.begin(kind, who)
        log.info("operation", op=operation.id, kind=kind.value, by=who)
        self._operation = operation
        self._job = asyncio.create_task(self._carry_out(operation, work, self._job))
        return operation

    @staticmethod
    async def _carry_out(
        operation: Operation,
        work: Callable[[Operation], Coroutine[Any, Any, None]],
        before: "asyncio.Task[None] | None",
    ) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        logcontext.bind(op=operation.id)
        try:
            await work(operation)
        except TokenFlowError as error:
            log.warning("operation_failed", code=error.code, message=error.message)
            operation.fail(error)
        except Exception as error:
            log.exception("operation_failed")
            operation.fail(OperationError(f"{type(error).__name__}: {error}", hint="tfctl status"))

    async def _start(self, operation: Operation, start: Callable[[], Coroutine[Any, Any, EngineProcess]]) -> None:
        if self._is_stop_wanted:
            raise _stopped_error(operation)
        self._starting = asyncio.create_task(start())
        try:
            engine = await self._starting
        except asyncio.CancelledError:
            raise _stopped_error(operation) from None
        finally:
            self._starting = None
        name = engine.plan.profile.name
        self._events.note(
            EventKind.ENGINE_STARTED, who=operation.started_by, terms={"profile": name, "pid": engine.pid}
        )
        operation.finish(url=engine.plan.url, profile=name, pid=engine.pid)

    async def _stop(self, operation: Operation, drain: Drain) -> None:
        try:
            await self._end_engine(operation, drain)
        finally:
            self._is_stop_wanted = False
        operation.finish(already=False)

    async def _restart(self, operation: Operation, draft: EnginePlan, drain: Drain) -> None:
        await self.lifecycle.check(draft, operation.report)
        self._keep_wish(draft)  # not before: what is refused must not be what the next boot starts
        await self._end_engine(operation, drain)
        await self._start(operation, lambda: self.lifecycle.start(draft, operation.report))

    async def _end_engine(self, operation: Operation, drain: Drain) -> None:
        engine = self.lifecycle.engine
        self._drain = drain
        try:
            await self.lifecycle.stop(drain, operation.report)
        finally:
            self._drain = None
        if engine is not None:
            terms: dict[str, Term] = {"profile": engine.plan.profile.name, "pid": engine.pid}
            self._events.note(EventKind.ENGINE_STOPPED, who=operation.started_by, terms=terms)


def _restart_limits(settings: Settings) -> RestartLimits:
    return RestartLimits(
        settings.restart_limit_count, settings.restart_window_s, settings.restart_backoff_s, _BACKOFF_MOST_S
    )


def _busy_error(running: Operation) -> ConflictError:
    waits_for = "stopped" if running.kind is OperationKind.STOP else "serving"
    return ConflictError(f"the engine is {_DOING[running.kind]}", hint=f"tfctl wait --for {waits_for}")


def _stopped_error(operation: Operation) -> ConflictError:
    return ConflictError(f"the {operation.kind.value} was interrupted by a stop", hint="tfctl status")
