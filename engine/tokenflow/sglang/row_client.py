"""Asks the schedulers how one stream stands, for that stream's client."""

import asyncio
import time
from collections import deque
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from tokenflow import link
from tokenflow.rows import row_of
from tokenflow.sglang.scheduler_sockets import SchedulerSockets
from tokenflow.wire import RequestRow

ANSWER_LIMIT_S = 2.0  # a long prefill holds up the scheduler's answers as it does everything else
FRESH_S = 0.1  # a client that asks more often gets the same answer again
MAX_KEPT_COUNT = 1000
MAX_WAITING_COUNT = 500


class RowClient:
    """Used on the event loop only."""

    def __init__(self, folder: Path) -> None:
        self._sockets = SchedulerSockets(folder, link.SCHEDULER_SOCKET)
        self._schedulers: list[_Questions] = []
        self._kept: dict[str, tuple[float, RequestRow | None]] = {}

    async def row(self, rid: str) -> RequestRow | None:
        """None: no scheduler knows it (any more). Raises TimeoutError where one does not answer that may know it."""
        kept = self._kept.get(rid)
        if kept is not None and time.monotonic() - kept[0] < FRESH_S:
            return kept[1]
        state = await self._find(rid)
        now_s = time.monotonic()
        row = None if state is None else row_of(state, now_s)
        if len(self._kept) >= MAX_KEPT_COUNT:
            self._kept.clear()
        self._kept[rid] = (now_s, row)
        return row

    async def _find(self, rid: str) -> link.StreamState | None:
        """The first answer that has it: another scheduler may be in a long prefill."""
        self._schedulers += [_Questions(path) for path in self._sockets.new().values()]
        if not self._schedulers:
            raise TimeoutError
        is_silent = False
        asked = [asyncio.ensure_future(scheduler.ask(link.ShowStream(rid=rid))) for scheduler in self._schedulers]
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    reply = await answer
                except TimeoutError:
                    is_silent = True
                    continue
                if reply.stream is not None:
                    return reply.stream
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        if is_silent:
            raise TimeoutError
        return None

    def close(self) -> None:
        """Gives the connections up."""
        for scheduler in self._schedulers:
            scheduler.close()


class _Questions:
    """Many on one connection; the scheduler answers them in their order."""

    def __init__(self, path: Path) -> None:
        self._socket: Any = zmq.asyncio.Context.shadow(zmq.Context.instance()).socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(f"ipc://{path}")
        self._waiting: deque[asyncio.Future[link.Reply]] = deque()
        self._reader = asyncio.create_task(self._read())

    async def ask(self, command: link.Command) -> link.Reply:
        """Raises TimeoutError where the scheduler does not answer."""
        if len(self._waiting) >= MAX_WAITING_COUNT:
            raise TimeoutError
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
        self._reader.cancel()
        self._socket.close()
