"""Asks the scheduler how one stream stands, for that stream's client."""

import asyncio
import time
from collections import deque
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from tokenflow import link
from tokenflow.rows import row_of
from tokenflow.wire import RequestRow

ANSWER_LIMIT_S = 2.0  # a long prefill holds up the scheduler's answers as it does everything else
FRESH_S = 0.1  # a client that asks more often gets the same answer again
MAX_KEPT_COUNT = 1000
MAX_WAITING_COUNT = 500


class RowClient:
    """Many questions on one connection; the scheduler answers them in their order. Used on the event loop only."""

    def __init__(self, folder: Path) -> None:
        self._address = f"ipc://{folder / link.SCHEDULER_SOCKET}"
        self._socket: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: deque[asyncio.Future[link.Reply]] = deque()
        self._kept: dict[str, tuple[float, RequestRow | None]] = {}

    async def row(self, rid: str) -> RequestRow | None:
        """None: the scheduler does not know it (any more). Raises TimeoutError where it does not answer."""
        kept = self._kept.get(rid)
        if kept is not None and time.monotonic() - kept[0] < FRESH_S:
            return kept[1]
        reply = await self._ask(link.ShowStream(rid=rid))
        now_s = time.monotonic()
        row = None if reply.stream is None else row_of(reply.stream, now_s)
        if len(self._kept) >= MAX_KEPT_COUNT:
            self._kept.clear()
        self._kept[rid] = (now_s, row)
        return row

    async def _ask(self, command: link.Command) -> link.Reply:
        if len(self._waiting) >= MAX_WAITING_COUNT:
            raise TimeoutError
        if self._socket is None:
            self._socket = zmq.asyncio.Context.shadow(zmq.Context.instance()).socket(zmq.DEALER)
            self._socket.setsockopt(zmq.LINGER, 0)
            self._socket.connect(self._address)
            self._reader = asyncio.create_task(self._read())
        answer: asyncio.Future[link.Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        await self._socket.send(link.encode(command))
        return await asyncio.wait_for(answer, ANSWER_LIMIT_S)

    async def _read(self) -> None:
        """An answer that comes late is taken too: else it would be the next one's."""
        while True:
            reply = link.decode_reply(await self._socket.recv())
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_result(reply)

    def close(self) -> None:
        """Gives the connection up."""
        if self._reader is not None:
            self._reader.cancel()
            self._socket.close()
