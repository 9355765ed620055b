"""Where one daemon keeps its things. Each control socket has its own files, so that two daemons never mix."""

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tokenflow import link, locations
from tokenflow.errors import ConfigurationError, SocketPathError


@dataclass(frozen=True, slots=True)
class DaemonPaths:
    socket: Path
    lock: Path
    record: Path
    engine_log: Path

    @classmethod
    def of(cls, socket: Path) -> "DaemonPaths":
        """Makes the state folder. Raises ConfigurationError or SocketPathError where a path cannot be used."""
        locations.check_socket_path(socket)
        locations.check_socket_path(socket.parent / "link-12345678" / max(_LINK_SOCKETS, key=len))
        state = locations.user_state_folder()
        try:
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"cannot make the state folder {state}: {error.strerror}",
                hint="set XDG_STATE_HOME to a writable folder",
            ) from error
        is_usual = socket == locations.user_socket()
        mark = "" if is_usual else "-" + hashlib.sha256(str(socket).encode()).hexdigest()[:8]
        return cls(
            socket=socket,
            lock=socket.with_name(f"{socket.name}.lock"),
            record=state / f"engine{mark}.json",
            engine_log=state / f"engine{mark}.log",
        )

    def make_link_folder(self) -> Path:
        """A fresh folder that only we may enter, beside the control socket."""
        try:
            return Path(tempfile.mkdtemp(prefix="link-", dir=self.socket.parent))
        except OSError as error:
            raise SocketPathError(
                f"cannot make the engine's link folder in {self.socket.parent}: {error.strerror}",
                hint="choose another place: tfctl --socket PATH start",
            ) from error


_LINK_SOCKETS = (link.TELEMETRY_SOCKET, link.SCHEDULER_SOCKET, link.FRONTEND_SOCKET, link.DELIVERY_SOCKET)
