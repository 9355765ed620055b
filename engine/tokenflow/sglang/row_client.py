"""Asks the scheduler how one stream stands, for that stream's client."""

import asyncio
import time
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


class RowClient:
    """One question at a time on one connection. Used on the event loop only."""

    def __init__(self, folder: Path) -> None:
        self._address = f"ipc://{folder / link.SCHEDULER_SOCKET}"
        self._socket: Any = None
        self._lock = asyncio.Lock()
        self._kept: dict[str, tuple[float, RequestRow | None]] = {}

    async def row(self, rid: str) -> RequestRow | None:
        """None: the scheduler does not know it (any more). Raises TimeoutError where it does not answer."""
        async with self._lock:
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
        if self._socket is None:
            self._socket = zmq.asyncio.Context.shadow(zmq.Context.instance()).socket(zmq.DEALER)
            self._socket.setsockopt(zmq.LINGER, 0)
            self._socket.connect(self._address)
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                await self._socket.send(link.encode(command))
                return link.decode_reply(await self._socket.recv())
        except BaseException:
            self._socket.close()  # an answer that comes late must not be taken for the next one's
            self._socket = None
            raise
