"""What systemd and the daemon tell each other: datagrams to `NOTIFY_SOCKET`, and descriptors that systemd has opened.

The protocols are those of sd_notify(3) and sd_listen_fds(3). Without systemd all of it does nothing.
"""

import os
import socket
import time
from collections.abc import MutableMapping

import structlog

from tokenflow.errors import ConfigurationError

log = structlog.get_logger()
_FIRST_DESCRIPTOR = 3
_MICRO = 1_000_000
_PATIENCE_S = 0.5


class ServiceManager:
    """Reads its variables when made and takes those of passed descriptors out, so that no child acts on them."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        is_watched = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog_us = environment.pop("WATCHDOG_USEC", "")
        self.watchdog_s = int(watchdog_us) / _MICRO if is_watched and watchdog_us.isdigit() else None
        """A sign of life is expected within this; None: nobody watches."""
        self.passed = _passed_descriptors(environment)
        self._has_failed = False

    @property
    def is_present(self) -> bool:
        return bool(self._address)

    def ready(self, status: str) -> None:
        """The control socket answers."""
        self._send("READY=1", f"STATUS={status}", limit_s=_PATIENCE_S)

    def status(self, text: str) -> bool:
        """One line for `systemctl status`. False where it could not be told now."""
        return self._send(f"STATUS={text}")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """To be followed by `ready`. The stamp is what Type=notify-reload waits for (systemd 253)."""
        self._send(
            "RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}", limit_s=_PATIENCE_S
        )

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={status}", limit_s=_PATIENCE_S)

    def extend(self, more_s: float) -> None:
        """What is under way may take `more_s` from now before it counts as stuck."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(more_s * _MICRO)}")

    def _send(self, *lines: str, limit_s: float = 0.0) -> bool:
        """`limit_s`: how long a manager that is busy may hold us up; what must not be lost waits a little."""
        if not self._address:
            return True
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        text = "\n".join(" ".join(line.split("\n")) for line in lines)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(limit_s)
                sender.connect(address)
                sender.send(text.encode())
                return True
        except OSError as error:
            if not self._has_failed:  # once: the watchdog would fill the log
                self._has_failed = True
                log.warning("notify_failed", socket=self._address, problem=str(error))
            return False


def _passed_descriptors(environment: MutableMapping[str, str]) -> list[int]:
    count, pid = environment.pop("LISTEN_FDS", ""), environment.pop("LISTEN_PID", "")
    environment.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdigit():
        return []
    found = list(range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(count)))
    for descriptor in found:
        os.set_inheritable(descriptor, False)
    return found


def control_socket_of(descriptors: list[int]) -> socket.socket | None:
    """The listening UNIX socket that was passed; None where none was. Raises ConfigurationError for anything else."""
    if not descriptors:
        return None
    if len(descriptors) > 1:
        raise ConfigurationError(
            f"{len(descriptors)} sockets were passed, and one is expected", hint="systemctl cat tokenflowd.socket"
        )
    try:
        passed = socket.socket(fileno=descriptors[0])
        is_listening = passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if passed.family is socket.AF_UNIX and passed.type is socket.SOCK_STREAM and is_listening:
            return passed
        found = repr(passed)
    except OSError as error:
        found = str(error)
    raise ConfigurationError(
        f"what was passed as descriptor {descriptors[0]} is no listening UNIX stream socket: {found}",
        hint="ListenStream=/run/tokenflow/control.sock in tokenflowd.socket",
    )
