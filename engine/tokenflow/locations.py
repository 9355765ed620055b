"""Every path that the project reads or writes. The only module that knows about XDG, /run, /etc and /var.

Root with the unit installed uses the system's folders; everybody else uses their own.
"""

import hashlib
import os
import stat
from pathlib import Path

from tokenflow.errors import SocketPathError

MAX_SOCKET_PATH_BYTES = 107  # sun_path holds 108 bytes with its closing zero
_SYSTEM_RUNTIME = Path("/run/tokenflow")
_SYSTEM_CONFIG = Path("/etc/tokenflow")
_SYSTEM_STATE = Path("/var/lib/tokenflow")


def _xdg(variable: str, fallback: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / fallback


def user_runtime_folder() -> Path:
    """`$XDG_RUNTIME_DIR/tokenflow`, else `/tmp/tokenflow-$UID` (docs/daemon.md, "Files")."""
    value = os.environ.get("XDG_RUNTIME_DIR", "")
    if value.startswith("/"):
        return Path(value) / "tokenflow"
    return Path(f"/tmp/tokenflow-{os.getuid()}")


def user_config_folder() -> Path:
    return _xdg("XDG_CONFIG_HOME", ".config") / "tokenflow"


def user_state_folder() -> Path:
    """Logs, the engine's record and what was tuned and persisted."""
    return _xdg("XDG_STATE_HOME", ".local/state") / "tokenflow"


def engine_record(socket: Path) -> Path:
    """Where the daemon of a control socket notes its engine; the engine's log lies beside it.

    Another socket than the user's own has files of its own, so that two daemons never mix.
    """
    if socket == system_socket():
        return _SYSTEM_STATE / "engine.json"
    mark = "" if socket == user_socket() else _mark(socket)
    return user_state_folder() / f"engine{mark}.json"


def engine_records(explicit: Path | None) -> list[Path]:
    """Where a client looks for an engine's record: that of the socket named, else the user's own, then the system's."""
    if explicit is not None:
        return [engine_record(explicit.expanduser().absolute())]
    system = _SYSTEM_RUNTIME / "control.sock"
    marked = _SYSTEM_STATE / f"engine{_mark(system)}.json"
    return [engine_record(user_socket()), marked, _SYSTEM_STATE / "engine.json"]


def tuned_file(socket: Path) -> Path:
    """What was tuned and is to outlive the engine, of the daemon of a control socket; marked as `engine_record` is.

    The system's daemon has a state folder of its own (its unit says so), so its file has no mark.
    """
    mark = "" if socket in (user_socket(), _SYSTEM_RUNTIME / "control.sock") else _mark(socket)
    return user_state_folder() / f"tuned{mark}.toml"


def _mark(socket: Path) -> str:
    """Tells the files of one control socket's daemon from another's."""
    return "-" + hashlib.sha256(str(socket).encode()).hexdigest()[:8]


def cache_folder() -> Path:
    """Models and downloads: may be deleted at any time."""
    return _xdg("XDG_CACHE_HOME", ".cache") / "tokenflow"


def system_socket() -> Path:
    """Where the host's service listens."""
    return _SYSTEM_RUNTIME / "control.sock"


def socket_candidates() -> list[Path]:
    """Where a client looks for the control socket, in order; the first that answers is taken."""
    return [system_socket(), user_runtime_folder() / "control.sock"]


def user_socket() -> Path:
    """Where a per-user daemon listens."""
    return user_runtime_folder() / "control.sock"


def profile_folders() -> list[tuple[str, Path]]:
    """(origin, folder) of profiles, weakest first: a later one hides an earlier one of the same name."""
    folders = [
        ("built-in", _shipped("profiles")),
        ("host", _SYSTEM_CONFIG / "profiles.d"),
        ("user", user_config_folder() / "profiles"),
        ("state", _SYSTEM_STATE / "profiles"),
    ]
    own_state = user_state_folder() / "profiles"
    return folders if own_state == folders[-1][1] else [*folders, ("state", own_state)]


def new_profile_folders() -> list[tuple[str, Path]]:
    """(origin, folder) of where a new profile is written: the first that can be written to.

    Root on a host with the service writes where the service looks; the state folder is for a read-only /etc.
    """
    if os.geteuid() == 0 and (_SYSTEM_CONFIG.is_dir() or _SYSTEM_STATE.is_dir()):
        return [("host", _SYSTEM_CONFIG / "profiles.d"), ("state", _SYSTEM_STATE / "profiles")]
    return [("user", user_config_folder() / "profiles"), ("state", user_state_folder() / "profiles")]


def settings_files() -> list[Path]:
    """The host's, then the user's; for the host's service they are one."""
    return list(dict.fromkeys([_SYSTEM_CONFIG / "tokenflow.toml", user_config_folder() / "tokenflow.toml"]))


def systemd_folder() -> Path:
    """The units as shipped, to be completed for an installation."""
    return _shipped("systemd")


def _shipped(name: str) -> Path:
    """Data inside the wheel, or beside the packages in a checkout (editable installs)."""
    packaged = Path(__file__).parent / "_data" / name
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / name


def check_socket_path(path: Path) -> None:
    """Raises SocketPathError if the kernel could not bind this path."""
    length_bytes = len(os.fsencode(path))
    if length_bytes > MAX_SOCKET_PATH_BYTES:
        raise SocketPathError(
            f"the socket path is {length_bytes} bytes long, {MAX_SOCKET_PATH_BYTES} is the limit: {path}",
            hint="choose a shorter one: tfctl --socket /tmp/tf.sock start, or set XDG_RUNTIME_DIR",
        )


def ensure_private_folder(path: Path) -> None:
    """Makes `path` a 0700 folder of ours. Raises SocketPathError if it is somebody else's or cannot be made."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.lstat()
    except OSError as error:
        raise SocketPathError(
            f"cannot use the folder {path}: {error.strerror}",
            hint="choose another place: tfctl --socket PATH start, or set XDG_RUNTIME_DIR",
        ) from error
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise SocketPathError(
            f"{path} is not a folder that belongs to uid {os.getuid()}",
            hint=f"look at it with: ls -ld {path}; or choose another place: tfctl --socket PATH start",
        )
    if stat.S_IMODE(info.st_mode) & 0o077:
        path.chmod(0o700)
