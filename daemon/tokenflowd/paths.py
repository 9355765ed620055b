"""Where one daemon keeps its things. Each control socket has its own files, so that two daemons never mix."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from tokenflow import link, locations
from tokenflow.errors import ConfigurationError, SocketPathError

TEMPORARY_FOLDER = "tmp"


@dataclass(frozen=True, slots=True)
class DaemonPaths:
    socket: Path
    lock: Path
    record: Path
    engine_log: Path
    tuned: Path
    crashes: Path
    wish: Path
    flight: Path

    @classmethod
    def of(cls, socket: Path) -> "DaemonPaths":
        """Makes the state folder. Raises ConfigurationError or SocketPathError where a path cannot be used."""
        locations.check_socket_path(socket)
        link_folder = socket.parent / "link-12345678"
        for name in (*_LINK_SOCKETS, f"{TEMPORARY_FOLDER}/tmp12345678"):  # SGLang binds sockets among its own files
            locations.check_socket_path(link_folder / name)
        engine_record = locations.engine_record(socket)
        state = engine_record.parent
        try:
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"cannot make the state folder {state}: {error.strerror}",
                hint="set XDG_STATE_HOME to a writable folder",
            ) from error
        return cls(
            socket=socket,
            lock=socket.with_name(f"{socket.name}.lock"),
            record=engine_record,
            engine_log=engine_record.with_suffix(".log"),
            tuned=locations.tuned_file(socket),
            flight=engine_record.with_name(f"{engine_record.stem}-flight"),
            wish=engine_record.with_name(engine_record.name.replace("engine", "wanted", 1)),
            crashes=engine_record.with_name(f"{engine_record.stem}-crashes"),
        )

    def make_link_folder(self) -> Path:
        """A fresh folder that only we may enter, beside the control socket. Holds the engine's temporary files too."""
        try:
            folder = Path(tempfile.mkdtemp(prefix="link-", dir=self.socket.parent))
            (folder / TEMPORARY_FOLDER).mkdir(mode=0o700)
            return folder
        except OSError as error:
            raise SocketPathError(
                f"cannot make the engine's link folder in {self.socket.parent}: {error.strerror}",
                hint="choose another place: tfctl --socket PATH start",
            ) from error


_MOST_SCHEDULERS = 99  # for the lengths of their sockets' names only
_LINK_SOCKETS = (
    link.FRONTEND_SOCKET,
    *(
        link.own_socket(name, _MOST_SCHEDULERS)
        for name in (link.TELEMETRY_SOCKET, link.SCHEDULER_SOCKET, link.DELIVERY_SOCKET)
    ),
)
