"""The daemon as a whole: comes up, serves, takes new settings, ends."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import structlog
from aiohttp import web

from tokenflow import locations
from tokenflow.errors import ConfigurationError, OperationError, TokenFlowError
from tokenflow.version import __version__
from tokenflowd import alarm_log, engine_record, heartbeat, leftover, server, wedge_watch
from tokenflowd import settings as daemon_settings
from tokenflowd.changes import Changes
from tokenflowd.context import Context
from tokenflowd.control_socket import ControlSocket
from tokenflowd.effects import Effects
from tokenflowd.ending import Ending
from tokenflowd.event_book import EventBook
from tokenflowd.flight_recorder import FlightRecorder
from tokenflowd.gpus.watch import GpuWatch
from tokenflowd.guard import RoleNames
from tokenflowd.lifecycle import EngineLifecycle
from tokenflowd.metrics.endpoint import MetricsEndpoint
from tokenflowd.metrics.exporter import MetricsExporter
from tokenflowd.metrics.listen import Listen
from tokenflowd.observation import Limits
from tokenflowd.operations import Operations
from tokenflowd.paths import DaemonPaths
from tokenflowd.service_manager import ServiceManager, control_socket_of
from tokenflowd.settings import OnDaemonStop, Settings
from tokenflowd.snapshot import Snapshots
from tokenflowd.streaming import SharedLines
from tokenflowd.supervisor import Supervisor
from tokenflowd.tuner import Tuner

log = structlog.get_logger()


class Daemon:
    """`start`, then `wait`, then `close`; or `run`, which is all three."""

    def __init__(
        self,
        settings: Settings,
        socket_path: Path | None = None,
        *,
        on_demand: bool = False,
        manager: ServiceManager | None = None,
    ) -> None:
        self._settings = settings
        self._manager = manager or ServiceManager({})
        self._passed = control_socket_of(self._manager.passed)
        socket_path = _path_of(self._passed, socket_path) or locations.user_socket()
        if socket_path == locations.user_socket() and self._passed is None:
            locations.check_socket_path(socket_path)
            locations.ensure_private_folder(socket_path.parent)
        self.paths = DaemonPaths.of(socket_path)
        self.ending = Ending(settings.farewell_s, on_demand=on_demand)
        self._changes = Changes()
        self._events = EventBook()
        operations = Operations(self._changes)
        lifecycle = EngineLifecycle(settings, self.paths, self._changes, self._events)
        self.supervisor = Supervisor(settings, lifecycle, operations, self._events, self.paths.wish)
        self._effects = Effects(lifecycle, self._events, settings.effect_window_s)
        self.gpus = GpuWatch()
        self.metrics = MetricsEndpoint(Listen.parse(settings.metrics_listen))
        snapshots = Snapshots(
            self.supervisor, self.paths, _limits(settings), self.metrics, self.gpus, on_demand=on_demand
        )
        self._context = Context(
            supervisor=self.supervisor,
            operations=operations,
            snapshots=snapshots,
            exporter=MetricsExporter(self.supervisor, snapshots),
            roles=RoleNames(operator=settings.operator_group, admin=settings.admin_group),
            changes=self._changes,
            lines=SharedLines(self._changes),
            events=self._events,
            ending=self.ending,
            paths=self.paths,
            tuner=Tuner(lifecycle, self._effects),
        )
        self._socket: ControlSocket | None = None
        self._runner: web.AppRunner | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Raises TokenFlowErrors when it cannot come up."""
        await self.start()
        try:
            await self.ending.requested.wait()
        finally:
            await self.close()

    async def start(self) -> None:
        """The control socket answers when this returns."""
        self._socket = ControlSocket(self.paths.socket, self.paths.lock, self._settings.socket_group, self._passed)
        try:
            await self._take_over_engine()
            self.gpus.start()
            await self.metrics.open(self._context.exporter)
            self._runner = await server.serve(self._context, self._socket.socket)
        except BaseException:
            await self.gpus.close()
            await self.metrics.close()
            self._socket.close()
            raise
        self._effects.start()
        log.info("daemon_serves", socket=str(self.paths.socket), version=__version__)
        if self._settings.autostart and self.supervisor.lifecycle.engine is None:
            self.supervisor.autostart()
        self._manager.ready(heartbeat.line_told(self._context.snapshots.status))
        if self._manager.is_present:
            self._tasks.append(
                asyncio.create_task(heartbeat.beat(self._manager, self._context.snapshots.status, self._changes))
            )
        self._tasks.append(asyncio.create_task(self._watch_for_wedges()))
        self._tasks.append(asyncio.create_task(alarm_log.run(self._context.snapshots.status)))
        self._record_flight()

    async def _watch_for_wedges(self) -> None:
        lifecycle = self.supervisor.lifecycle
        await wedge_watch.watch(
            lambda: self._settings.wedged_restart_s, self._context.snapshots.engine_state, lifecycle.give_up
        )

    def _record_flight(self) -> None:
        if self._settings.flight_recorder_bytes:
            recorder = FlightRecorder(
                self.paths.flight,
                self._context.snapshots,
                self._events,
                limit_bytes=self._settings.flight_recorder_bytes,
                limit_age_s=self._settings.flight_recorder_age_s,
            )
            self._tasks.append(asyncio.create_task(recorder.run()))

    def reload(self, load: Callable[[], Settings]) -> None:
        """Takes over what `load` returns; where it raises, everything stays as it is."""
        self._manager.reloading()
        try:
            new = load()
        except TokenFlowError as error:
            log.error("reload_failed", message=error.message, hint=error.hint)
            self._manager.ready(f"the reload failed, the old settings stay: {error.message}")
            return
        old, self._settings = self._settings, new
        changed = [key for key in type(new).model_fields if getattr(new, key) != getattr(old, key)]
        self.supervisor.apply(new)
        self._context.snapshots.apply(_limits(new))
        self.ending.farewell_s = new.farewell_s
        pending = sorted(daemon_settings.NEEDS_DAEMON_RESTART.intersection(changed))
        log.info("reloaded", changed=changed, needs_daemon_restart=pending)
        self._manager.ready(heartbeat.line_told(self._context.snapshots.status))

    async def close(self) -> None:
        """Ends the engine (or lets go of it, `on_daemon_stop`), then the server; the socket goes last."""
        self.ending.forget()
        self._effects.stop()
        self._manager.stopping("ending")
        more_time = asyncio.create_task(heartbeat.extend(self._manager))
        try:
            for task in self._tasks:
                task.cancel()
            self.supervisor.forget_revival()
            if self._settings.on_daemon_stop is OnDaemonStop.STOP:
                self.supervisor.stop(None, "the daemon's end", is_wish_kept=True)
                await self.supervisor.wait_idle()
            else:
                await self.supervisor.lifecycle.release()
            self._changes.close()
            self._events.close()
            await self.metrics.close()
            await self.gpus.close()
            if self._runner is not None:
                await self._runner.cleanup()
        finally:
            more_time.cancel()
            if self._socket is not None:
                self._socket.close()
        log.info("daemon_ended")

    def abandon(self) -> None:
        """The second signal: nobody is asked, nothing is waited for."""
        if self._settings.on_daemon_stop is OnDaemonStop.STOP:
            self.supervisor.lifecycle.kill_now()
        if self._socket is not None:
            self._socket.close()

    async def _take_over_engine(self) -> None:
        """The engine of a daemon that has ended goes on under this one; one that cannot is ended."""
        found = engine_record.find_adoptable(self.paths.record)
        if found is not None:
            await self.supervisor.adopt(*found)
            return
        try:
            await leftover.end(self.paths.record)
        except OperationError as error:  # what it holds is told by the checks before a start
            log.warning("leftover_engine_stays", problem=error.message)


def _limits(settings: Settings) -> Limits:
    return Limits(settings.busy_after_s, settings.wedged_after_s, settings.telemetry_stale_after_s)


def _path_of(passed: socket.socket | None, named: Path | None) -> Path | None:
    """The control socket's path. Raises ConfigurationError where another one was passed than was named."""
    if passed is None:
        return named
    address = passed.getsockname()
    path = Path(address if isinstance(address, str) else "")
    if named not in (None, path):
        raise ConfigurationError(
            f"the socket that was passed is {path}, and --socket says {named}",
            hint="ListenStream= of tokenflowd.socket and --socket must name the same path",
        )
    return path
