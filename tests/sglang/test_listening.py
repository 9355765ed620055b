"""What the kernel holds of a stream that nobody reads, over real sockets."""

import asyncio
import socket
from types import SimpleNamespace

import pytest

from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.listening import UNSENT_BYTES, ListeningHook, limit_unsent


def taken_by_the_kernel(listening: socket.socket) -> int:
    """Bytes that a connection takes for a client that never reads."""
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(listening.getsockname())
        accepted, _ = listening.accept()
        with accepted:
            accepted.settimeout(0.5)  # time for what the client's window still takes
            taken_bytes = 0
            try:
                while taken_bytes < 1 << 24:
                    taken_bytes += accepted.send(b"x" * 1024)
            except TimeoutError:
                pass
            return taken_bytes


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one


def test_without_a_limit_it_is_megabytes(listening):
    assert taken_by_the_kernel(listening) > 1 << 20


def test_the_limit_is_inherited_by_connections(listening):
    limit_unsent(listening.fileno())
    assert taken_by_the_kernel(listening) < 8 * UNSENT_BYTES


async def test_the_servers_sockets_get_it_when_they_listen():
    server = SimpleNamespace()

    async def startup(one, sockets=None):
        one.servers = [await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)]

    await ListeningHook(FaultGuard()).around_startup(startup, server)
    [inner] = server.servers
    async with inner:
        assert inner.sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == UNSENT_BYTES


async def test_a_server_that_is_otherwise_built_starts_all_the_same():
    guard = FaultGuard()
    server = SimpleNamespace(servers=[object()])

    async def startup(one, sockets=None):
        one.is_started = True

    await ListeningHook(guard).around_startup(startup, server)
    assert server.is_started
    assert guard.fault_count == 1
