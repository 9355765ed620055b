"""The daemon's end of the engine's link (`tokenflow.link`): telemetry in, commands out."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import structlog
import zmq
import zmq.asyncio

from tokenflow import link
from tokenflow.errors import TimedOutError
from tokenflow.events import Event
from tokenflowd import logcontext

log = structlog.get_logger()
COMMAND_LIMIT_S = 5.0
_RECONNECT_MS = 100


class CommandChannel:
    """Asks one process of the engine. Answers are matched by a number that the other side echoes in the envelope."""

    def __init__(self, context: "zmq.asyncio.Context", path: Path) -> None:
        self._socket: Any = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._socket.setsockopt(zmq.IMMEDIATE, 1)  # nothing is queued for a process that does not listen yet
        self._socket.connect(f"ipc://{path}")
        self._numbers = itertools.count(1)
        self._turn = asyncio.Lock()

    async def ask(self, command: link.Command, limit_s: float = COMMAND_LIMIT_S) -> link.Reply:
        """Raises TimedOutError when the process does not answer within `limit_s`."""
        try:
            async with asyncio.timeout(limit_s), self._turn:
                return await self._exchange(command)
        except TimeoutError as error:
            raise TimedOutError(
                f"the engine did not answer within {limit_s:g} s", hint="look at its log: tfctl logs -n 50"
            ) from error

    async def _exchange(self, command: link.Command) -> link.Reply:
        number = str(next(self._numbers)).encode()
        await self._socket.send_multipart([number, link.encode(command)])
        while True:
            frames = await self._socket.recv_multipart()
            if frames[0] == number:  # others answer questions that were given up
                return link.decode_reply(frames[-1])

    def close(self) -> None:
        self._socket.close(linger=0)


class EngineLink:
    """All sockets of one engine. Made anew for each engine, closed with it."""

    def __init__(
        self,
        folder: Path,
        on_telemetry: Callable[[link.Telemetry], None],
        on_events: Callable[[list[Event]], None],
    ) -> None:
        self._on_events = on_events
        self._context = zmq.asyncio.Context()
        self._on_telemetry = on_telemetry
        self._telemetry: Any = self._context.socket(zmq.SUB)
        self._telemetry.setsockopt(zmq.LINGER, 0)
        self._telemetry.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._telemetry.setsockopt(zmq.RCVHWM, link.TELEMETRY_QUEUE_COUNT)
        self._telemetry.setsockopt(zmq.SUBSCRIBE, b"")
        self._telemetry.connect(f"ipc://{folder / link.TELEMETRY_SOCKET}")
        self.frontend = CommandChannel(self._context, folder / link.FRONTEND_SOCKET)
        self.scheduler = CommandChannel(self._context, folder / link.SCHEDULER_SOCKET)
        self._task = logcontext.detached(self._receive())

    async def _receive(self) -> None:
        told: set[str] = set()
        while True:
            body = await self._telemetry.recv()
            try:
                telemetry = link.decode_telemetry(body)
                self._on_events(telemetry.events)
                if not self._telemetry.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                    self._on_telemetry(telemetry)  # only the latest counts; events of all of them do
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
        self.scheduler.close()
        self._context.term()
