"""The daemon's end of the engine's link (`tokenflow.link`): telemetry in, commands out."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import structlog
import zmq
import zmq.asyncio

from tokenflow import link
from tokenflowd import logcontext
from tokenflowd.command_channel import RECONNECT_MS, CommandChannel
from tokenflowd.scheduler_channels import SchedulerChannels

log = structlog.get_logger()


class EngineLink:
    """All sockets of one engine. Made anew for each engine, closed with it."""

    def __init__(
        self,
        folder: Path,
        on_telemetry: Callable[[list[link.Telemetry]], None],
        on_events: Callable[[link.Telemetry], None],
    ) -> None:
        """`on_telemetry` gets the latest of each that has spoken since; `on_events` all, for the events in them."""
        self._on_events = on_events
        self._context = zmq.asyncio.Context()
        self._on_telemetry = on_telemetry
        self._telemetry: Any = self._context.socket(zmq.SUB)
        self._telemetry.setsockopt(zmq.LINGER, 0)
        self._telemetry.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._telemetry.setsockopt(zmq.RCVHWM, link.TELEMETRY_QUEUE_COUNT)
        self._telemetry.setsockopt(zmq.SUBSCRIBE, b"")
        self._folder = folder
        self._heard_count = 0
        self._latest: dict[int, link.Telemetry] = {}
        bound = link.bound_sockets(folder, link.TELEMETRY_SOCKET)  # of an engine that was there before us
        self._expect(max(bound, default=0) + 1)
        self.frontend = CommandChannel(self._context, folder / link.FRONTEND_SOCKET)
        self.schedulers = SchedulerChannels(self._context, folder)
        self.schedulers.expect(self._heard_count)
        self._task = logcontext.detached(self._receive())

    def _expect(self, count: int) -> None:
        """So many schedulers have a link."""
        while self._heard_count < count:
            name = link.own_socket(link.TELEMETRY_SOCKET, self._heard_count)
            self._telemetry.connect(f"ipc://{self._folder / name}")
            self._heard_count += 1

    def _take(self, telemetry: link.Telemetry) -> None:
        self._on_events(telemetry)
        if telemetry.watched_count > self._heard_count:
            self._expect(telemetry.watched_count)
            self.schedulers.expect(telemetry.watched_count)
        self._latest[telemetry.scheduler_index] = telemetry
        if self._telemetry.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            return  # only the latest of each counts; events of all of them do
        latest, self._latest = self._latest, {}
        self._on_telemetry(list(latest.values()))

    async def _receive(self) -> None:
        told: set[str] = set()
        while True:
            body = await self._telemetry.recv()
            try:
                self._take(link.decode_telemetry(body))
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                log.warning("telemetry_unreadable", problem=str(error))
            except Exception as error:  # a fault of ours over one message must not cost all that come after it
                if repr(error) not in told:
                    told.add(repr(error))
                    log.exception("telemetry_not_taken")

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._telemetry.close(linger=0)
        self.frontend.close()
        self.schedulers.close()
        self._context.term()
