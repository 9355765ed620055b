"""One engine, from its spawn or its adoption to its last process. Made anew for each."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import structlog

from tokenflow import link
from tokenflow.errors import TimedOutError, UnsupportedError
from tokenflow.policy.tunables import Tunables
from tokenflowd import logcontext, logfile, processes, shared_memory
from tokenflowd.event_book import EventBook, EventIntake
from tokenflowd.failure import Death, Role
from tokenflowd.link import EngineLink
from tokenflowd.plan import EnginePlan
from tokenflowd.record import EngineRecord
from tokenflowd.request_book import RequestBook
from tokenflowd.scheduler_book import SchedulerBook
from tokenflowd.trends import Trends

log = structlog.get_logger()
_LOG_MODE = 0o600
_STRAGGLER_GRACE_S = 2.0
_LOOK_S = 3.0
STARVED_AFTER_BOUNDS = 2.0  # past the bound a request goes first; past twice that something is wrong
_DEFAULT_STARVATION_BOUND_S = Tunables().starvation_bound_s


class EngineProcess:
    """The main process, its process group, its link, and a watch over the processes that it cannot do without."""

    def __init__(
        self,
        plan: EnginePlan,
        pid: int,
        child: "subprocess.Popen[bytes] | None",
        link_folder: Path,
        events: EventBook,
    ) -> None:
        self.plan = plan
        self.pid = pid
        self.start_ticks = processes.start_ticks(pid) or 0
        self.started_s = time.monotonic()
        self.serving_since_s: float | None = None
        self.link_folder = link_folder
        self.schedulers = SchedulerBook(lambda: len(link.bound_sockets(link_folder, link.TELEMETRY_SOCKET)))
        self.requests = RequestBook()
        self.frontend_reply: link.Reply | None = None
        self.command_reply: link.Reply | None = None  # the scheduler's last one
        self.tunables_reply: link.Reply | None = None  # the last one that said what is in force
        self.tuned: dict[str, Any] = {}  # by key, what is another now than at its start
        self._tuned_revision: int | None = None  # as of which `tuned` is known
        self.death: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        self.has_plugin = False  # its scheduler has been heard, by us or by the daemon before us
        self._child = child
        self._events = events
        self._intakes: dict[int, EventIntake] = {}
        self._link = EngineLink(link_folder, self._take_telemetry, self._take_events)
        self._heard = asyncio.Event()
        self.trends = Trends()
        self.frontend_heard_s: float | None = None
        self._roles: dict[int, Role] = {}
        self._watches: dict[int, asyncio.Task[None]] = {}
        self._known: dict[int, int] = {}
        self._shared_files: shared_memory.SharedFiles = {}
        self.watch(Role.MAIN, pid)
        self._looks = logcontext.detached(self._look())

    @classmethod
    def spawn(
        cls,
        plan: EnginePlan,
        command: list[str],
        environment: dict[str, str],
        link_folder: Path,
        log_path: Path,
        events: EventBook,
    ) -> "EngineProcess":
        """The child writes the log file itself: the daemon is not in the pipe and may end without it noticing."""
        logfile.rotate(log_path)
        descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _LOG_MODE)
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
        try:
            return cls(plan, child.pid, child, link_folder, events)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise

    @classmethod
    def adopt(cls, plan: EnginePlan, entry: EngineRecord, events: EventBook) -> "EngineProcess":
        """The engine of a daemon that has ended: not our child, else like any other."""
        engine = cls(plan, entry.pid, None, Path(entry.link_folder), events)
        engine.start_ticks = entry.start_ticks
        engine.has_plugin = entry.has_plugin
        if entry.started_s is not None:
            engine.started_s = entry.started_s
        engine.remember_descendants()
        engine.watch_children()
        return engine

    @property
    def is_adopted(self) -> bool:
        return self._child is None

    def _reap(self) -> int | None:
        """The main process's exit code once it has ended, where that can be known."""
        return processes.exit_status(self.pid) if self._child is None else self._child.poll()

    def watch(self, role: Role, pid: int) -> None:
        """From now on the end of `pid` is the end of this engine."""
        if pid not in self._watches:
            self._roles[pid] = role
            self._watches[pid] = logcontext.detached(self._watch(role, pid))

    async def _watch(self, role: Role, pid: int) -> None:
        await processes.wait_for_exit(pid)
        code = self._reap() if pid == self.pid else processes.exit_status(pid)
        if not self.death.done():
            self.death.set_result(Death(role, pid, code))

    @property
    def telemetry(self) -> link.Telemetry | None:
        """The latest, of all its schedulers together."""
        return self.schedulers.whole

    def _take_events(self, telemetry: link.Telemetry) -> None:
        index = telemetry.scheduler_index
        if index not in self._intakes:
            place = index if telemetry.watched_count > 1 else None
            self._intakes[index] = EventIntake(self._events, place, is_midway=self._child is None)
        self._intakes[index].take(telemetry.events)

    def _take_telemetry(self, messages: list[link.Telemetry]) -> None:
        whole = self.schedulers.take(messages)
        self.has_plugin = True
        self._heard.set()
        self.requests.take(self.schedulers.each)
        if self.schedulers.is_complete:  # else the whole past of the next to be heard would count as of this moment
            self.trends.take(whole, STARVED_AFTER_BOUNDS * self._starvation_bound_s())
        for telemetry in messages:
            if telemetry.pid not in self._watches:
                self.watch(Role.SCHEDULER, telemetry.pid)

    def _starvation_bound_s(self) -> float:
        in_force = self.tunables_reply.tunables if self.tunables_reply else None
        value = (in_force or {}).get("starvation_bound_s", _DEFAULT_STARVATION_BOUND_S)
        return float(value)

    def stopped(self) -> dict[int, Role]:
        """Those of the processes that it cannot do without that a signal has stopped."""
        return {pid: role for pid, role in self._roles.items() if processes.is_stopped(pid)}

    async def wait_heard(self, limit_s: float) -> bool:
        """Until the scheduler has been heard, `limit_s` at most. True once it has been."""
        try:
            await asyncio.wait_for(self._heard.wait(), limit_s)
        except TimeoutError:
            return False
        return True

    async def ask_frontend(self, command: link.Command, limit_s: float) -> link.Reply | None:
        """None when there is no answer: no plugin, or a process that is not up yet."""
        try:
            reply = await self._link.frontend.ask(command, limit_s)
        except TimedOutError:
            return None
        self.frontend_reply = reply
        self.frontend_heard_s = time.monotonic()
        self.watch(Role.FRONTEND, reply.pid)
        return reply

    async def command(self, command: link.Command) -> link.Reply:
        """The scheduler's answer.

        Raises UnsupportedError where no plugin is at work, TimedOutError where the scheduler does not answer.
        """
        if self.telemetry is None:
            detail = self.frontend_reply.plugin_detail if self.frontend_reply else None
            raise UnsupportedError(
                f"the plugin is not at work in this engine{f': {detail}' if detail else ''}", hint="tfctl status"
            )
        reply = await self._link.schedulers.ask(command)
        is_dry_run = isinstance(command, link.Tune) and command.dry_run
        if reply.error_code is None and not is_dry_run:
            self.command_reply = reply
            if reply.tunables is not None:
                self.tunables_reply = reply
            if isinstance(command, link.Ping | link.Tune):
                tunables = reply.tunables or {}
                self.tuned = {key: tunables[key] for key in reply.tuned_keys if key in tunables}
                self._tuned_revision = reply.revision
        return reply

    def remember_descendants(self) -> None:
        """They are found again at the end even if they leave the group and their parent dies before them."""
        known = self._known | processes.with_start_ticks(processes.descendants(self.pid))
        # Compilers and helpers come and go for months: whoever is gone is not remembered. A zombie is yet to be reaped.
        self._known = {pid: ticks for pid, ticks in known.items() if processes.start_ticks(pid) == ticks}
        alive = {pid for pid in self._known if processes.is_alive(pid)}
        self._shared_files |= shared_memory.mapped_by(alive | {self.pid})

    async def _look(self) -> None:
        """Processes and shared memory come late and change: SGLang's scheduler is seen minutes before it serves."""
        told: set[str] = set()
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._look_once()
            except Exception as error:
                # The next look may succeed. Without any, an engine that serves would count as wedged for good.
                if repr(error) not in told:
                    told.add(repr(error))
                    log.exception("look_failed", pid=self.pid)

    async def _look_once(self) -> None:
        self.remember_descendants()
        if self.serving_since_s is None:
            return
        self.watch_children()
        if self.has_plugin or self.frontend_reply is not None:
            await self.ask_frontend(link.Ping(), _LOOK_S)
        if self.telemetry is not None and self._tuned_revision != self.telemetry.revision:
            await self._learn_tunables()

    async def _learn_tunables(self) -> None:
        """What is in force in an engine that somebody else may have tuned: an earlier daemon, or `mode --direct`."""
        try:
            await self.command(link.Ping())
        except (TimedOutError, UnsupportedError):
            pass  # asked again at the next look

    def watch_children(self) -> None:
        """Watches the processes that SGLang's main process has started and needs; they give themselves titles."""
        for pid, title in processes.titles_of_children(self.pid).items():
            role = Role.of_title(title)
            if role is not None:
                self.watch(role, pid)

    async def end(self, grace_s: float, *, is_polite: bool) -> set[int]:
        """Returns when no process of the engine is left, and its link folder neither; or those that even SIGKILL left.

        `is_polite`: the main process is asked first and ends its children in its own order (GPU memory is released
        that way); what is left after `grace_s` is killed. Else everything is asked at once and killed soon after.
        """
        self.remember_descendants()
        if is_polite:
            processes.send([self.pid], self.plan.ending_signal)
            await asyncio.wait([self._watches[self.pid]], timeout=grace_s)
            grace_s = 0.0 if processes.is_same_process(self.pid, self.start_ticks) else _STRAGGLER_GRACE_S
        left = await processes.end_processes(self.pid, self.link_folder, self._known, grace_s)
        self._reap()
        processes.reap_orphans({*self._known, *self._watches}, self.pid)
        await self.close()
        shutil.rmtree(self.link_folder, ignore_errors=True)
        if not left:
            await asyncio.to_thread(shared_memory.remove_unused, self._shared_files)
        return left

    def kill_now(self) -> None:
        """For somebody in a hurry: no waiting, no asking."""
        self.remember_descendants()
        known = {pid for pid, ticks in self._known.items() if processes.is_same_process(pid, ticks)}
        ended = processes.engine_processes(self.pid, self.link_folder) | known
        processes.send(ended, signal.SIGKILL)
        shared_memory.remove_unused(self._shared_files, ended)

    async def close(self) -> None:
        """Lets go of the engine without ending it."""
        tasks = [self._looks, *self._watches.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._link.close()
