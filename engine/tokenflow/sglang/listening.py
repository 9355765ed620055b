"""What the kernel may hold of a stream that its client does not read.

Linux lets a connection's send buffer grow to megabytes: thousands of tokens that count as delivered although nobody
takes them. With a limit to what has not yet left this machine (`TCP_NOTSENT_LOWAT`) a socket says "full" as soon as the
client's own window is, while what is on its way is not limited, so that a long line stays as fast as before.
"""

import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from tokenflow.sglang.faults import FaultGuard

UNSENT_BYTES = 16_384
STARTUP_TARGET = "uvicorn.server.Server.startup"


def limit_unsent(fileno: int) -> None:
    """Connections that are accepted from this listening socket inherit the limit. Raises OSError."""
    with socket.socket(fileno=os.dup(fileno)) as listening:  # the event loop's own object cannot set options
        if listening.family in (socket.AF_INET, socket.AF_INET6):
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


class ListeningHook:
    """Stands around the HTTP server's start-up, after which its sockets listen."""

    def __init__(self, guard: FaultGuard) -> None:
        self._guard = guard

    async def around_startup(
        self, original: Callable[..., Awaitable[None]], server: Any, *arguments: Any, **options: Any
    ) -> None:
        await original(server, *arguments, **options)
        try:
            for one in getattr(server, "servers", ()):
                for listening in one.sockets:
                    limit_unsent(listening.fileno())
        except Exception as error:  # noqa: BLE001 - fail open
            self._guard.record("listening", error)
