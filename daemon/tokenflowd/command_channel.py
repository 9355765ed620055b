"""Commands to one process of the engine, and its answers."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from tokenflow import link
from tokenflow.errors import TimedOutError

COMMAND_LIMIT_S = 5.0
RECONNECT_MS = 100


class CommandChannel:
    """Asks one process of the engine. Answers are matched by a number that the other side echoes in the envelope."""

    def __init__(self, context: "zmq.asyncio.Context", path: Path) -> None:
        self._socket: Any = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
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
