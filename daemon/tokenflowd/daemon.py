"""The daemon as a whole: comes up, serves, ends."""

from pathlib import Path

import structlog
from aiohttp import web

from tokenflow import locations
from tokenflow.errors import OperationError
from tokenflow.version import __version__
from tokenflowd import leftover, server
from tokenflowd.changes import Changes
from tokenflowd.context import Context
from tokenflowd.control_socket import ControlSocket
from tokenflowd.effects import Effects
from tokenflowd.ending import Ending
from tokenflowd.event_book import EventBook
from tokenflowd.gpus.watch import GpuWatch
from tokenflowd.guard import RoleNames
from tokenflowd.lifecycle import EngineLifecycle
from tokenflowd.metrics.endpoint import MetricsEndpoint
from tokenflowd.metrics.exporter import MetricsExporter
from tokenflowd.metrics.listen import Listen
from tokenflowd.observation import Limits
from tokenflowd.operations import Operations
from tokenflowd.paths import DaemonPaths
from tokenflowd.settings import OnDaemonStop, Settings
from tokenflowd.snapshot import Snapshots
from tokenflowd.supervisor import Supervisor
from tokenflowd.tuner import Tuner

log = structlog.get_logger()


class Daemon:
    """`start`, then `wait`, then `close`; or `run`, which is all three."""

    def __init__(self, settings: Settings, socket_path: Path | None = None, *, on_demand: bool = False) -> None:
        self._settings = settings
        socket_path = socket_path or locations.user_socket()
        if socket_path == locations.user_socket():
            locations.check_socket_path(socket_path)
            locations.ensure_private_folder(socket_path.parent)
        self.paths = DaemonPaths.of(socket_path)
        self.ending = Ending(settings.farewell_s, on_demand=on_demand)
        self._changes = Changes()
        self._events = EventBook()
        operations = Operations(self._changes)
        lifecycle = EngineLifecycle(settings, self.paths, self._changes, self._events)
        self.supervisor = Supervisor(settings, lifecycle, operations, self._events)
        self._effects = Effects(lifecycle, self._events, settings.effect_window_s)
        limits = Limits(settings.busy_after_s, settings.wedged_after_s, settings.telemetry_stale_after_s)
        self.gpus = GpuWatch()
        self.metrics = MetricsEndpoint(Listen.parse(settings.metrics_listen))
        snapshots = Snapshots(self.supervisor, self.paths, limits, self.metrics, self.gpus, on_demand=on_demand)
        self._context = Context(
            supervisor=self.supervisor,
            operations=operations,
            snapshots=snapshots,
            exporter=MetricsExporter(self.supervisor, snapshots),
            roles=RoleNames(operator=settings.operator_group, admin=settings.admin_group),
            changes=self._changes,
            events=self._events,
            ending=self.ending,
            paths=self.paths,
            tuner=Tuner(lifecycle, self._effects),
        )
        self._socket: ControlSocket | None = None
        self._runner: web.AppRunner | None = None

    async def run(self) -> None:
        """Raises TokenFlowErrors when it cannot come up."""
        await self.start()
        try:
            await self.ending.requested.wait()
        finally:
            await self.close()

    async def start(self) -> None:
        """The control socket answers when this returns."""
        self._socket = ControlSocket(self.paths.socket, self.paths.lock, self._settings.socket_group)
        try:
            await self._end_leftover_engine()
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

    async def close(self) -> None:
        """Ends the engine (or lets go of it, `on_daemon_stop`), then the server; the socket goes last."""
        self.ending.forget()
        self._effects.stop()
        try:
            if self._settings.on_daemon_stop is OnDaemonStop.STOP:
                self.supervisor.stop(None, "the daemon's end")
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
            if self._socket is not None:
                self._socket.close()
        log.info("daemon_ended")

    def abandon(self) -> None:
        """The second signal: nobody is asked, nothing is waited for."""
        self.supervisor.lifecycle.kill_now()
        if self._socket is not None:
            self._socket.close()

    async def _end_leftover_engine(self) -> None:
        try:
            await leftover.end(self.paths.record)
        except OperationError as error:  # what it holds is told by the checks before a start
            log.warning("leftover_engine_stays", problem=error.message)
