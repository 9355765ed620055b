"""Connections to our sockets: one that never asks, or a peer with too many, takes nothing from others."""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

import structlog
from aiohttp import web

from tokenflowd.identity import peer_of

log = structlog.get_logger()
HEAD_LIMIT_S = 10.0  # from the connection to the end of its first request's head
MOST_PER_USER = 256
MOST_PER_ADDRESS = 32
_HEAD_END = b"\r\n\r\n"


def user_of(connection: socket.socket) -> str:
    """Who is at the other end of a UNIX socket. Raises OSError."""
    return f"uid {peer_of(connection).uid}"


def address_of(connection: socket.socket) -> str:
    """Who is at the other end of a TCP socket. Raises OSError."""
    return str(connection.getpeername()[0])


class Connections:
    """Makes the protocol of each connection: aiohttp's, with a look at how it begins. `most` are held for each peer,
    MOST_PER_USER where it is None."""

    def __init__(
        self, server: web.Server, peer: Callable[[socket.socket], str] = user_of, most: int | None = None
    ) -> None:
        self._server = server
        self._peer = peer
        self._most = most
        self.counts: Counter[str] = Counter()

    def __call__(self) -> asyncio.Protocol:
        most = MOST_PER_USER if self._most is None else self._most
        return _Watched(self._server(), self.counts, self._peer, most)


class WatchedSite(web.BaseSite):
    """A site of aiohttp's whose connections are watched. `where`: what `loop.create_server` is told to listen on."""

    def __init__(
        self,
        runner: web.AppRunner,
        name: str,
        peer: Callable[[socket.socket], str] = user_of,
        most: int | None = None,
        **where: Any,
    ) -> None:
        super().__init__(runner)
        self._name, self._peer, self._most, self._where = name, peer, most, where

    @property
    def name(self) -> str:
        return self._name

    async def start(self) -> None:
        await super().start()
        assert self._runner.server is not None, "the runner is set up before its site starts"
        make = Connections(self._runner.server, self._peer, self._most)
        self._server = await asyncio.get_running_loop().create_server(make, backlog=self._backlog, **self._where)


class _Watched(asyncio.Protocol):
    """Hands everything on to aiohttp's protocol. Ends a connection whose request does not come."""

    def __init__(
        self, inner: asyncio.Protocol, counts: Counter[str], peer_of: Callable[[socket.socket], str], most: int
    ) -> None:
        self._inner = inner
        self._counts = counts
        self._peer_of = peer_of
        self._most = most
        self._peer: str | None = None
        self._tail = b""
        self._limit: asyncio.TimerHandle | None = None
        self._is_handed_on = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        connection: Any = transport.get_extra_info("socket")
        try:
            peer = self._peer_of(connection)
        except OSError:
            transport.abort()
            return
        if self._counts[peer] >= self._most:
            log.warning("too_many_connections", peer=peer, most=self._most)
            transport.abort()
            return
        self._peer = peer
        self._counts[peer] += 1
        self._limit = asyncio.get_running_loop().call_later(HEAD_LIMIT_S, transport.abort)
        self._is_handed_on = True
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._limit is not None:
            seen = self._tail + data
            self._tail = seen[-len(_HEAD_END) + 1 :]
            if _HEAD_END in seen:
                self._end_limit()
        if self._is_handed_on:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._is_handed_on else None

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._end_limit()
        if self._peer is not None:
            self._counts[self._peer] -= 1
            self._counts += Counter()  # drops those at zero
        if self._is_handed_on:
            self._inner.connection_lost(error)

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
