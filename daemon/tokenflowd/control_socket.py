"""The control socket's file: one daemon a path, no moment in which others could connect, removed only if ours."""

import errno
import fcntl
import grp
import os
import socket
from pathlib import Path

from tokenflow.errors import ConfigurationError, ConflictError, SocketPathError

_CONNECT_LIMIT_S = 2.0


class ControlSocket:
    """Holds the lock and the bound socket. Raises SocketPathError, ConflictError, ConfigurationError when made.

    `passed`: a socket that the service manager has bound. Its file, owner and mode are the service manager's.
    """

    def __init__(self, path: Path, lock_path: Path, group: str | None, passed: socket.socket | None = None) -> None:
        self.path = path
        self._lock_path = lock_path
        self._lock = _take_lock(lock_path, path)
        self._is_closed = False
        self._inode: int | None = None
        if passed is not None:
            self.socket = passed
            return
        try:
            _remove_stale(path)
            self.socket = _bind(path, group)
        except BaseException:
            self._release_lock()
            raise
        self._inode = path.stat().st_ino

    def close(self) -> None:
        """Removes the file unless somebody has put another one in its place. Harmless when repeated."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._inode is not None and self.path.stat().st_ino == self._inode:
                self.path.unlink()
        except FileNotFoundError:
            pass
        self.socket.close()
        self._release_lock()

    def _release_lock(self) -> None:
        self._lock_path.unlink(missing_ok=True)  # while it is still held: see _take_lock
        os.close(self._lock)


def _take_lock(lock_path: Path, socket_path: Path) -> int:
    """Two daemons that start at once cannot both win. Returns the descriptor that holds the lock."""
    while True:
        try:
            descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(socket_path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip()
            os.close(descriptor)
            raise _already_running(socket_path, holder or None) from None
        if _is_still_there(descriptor, lock_path):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
            return descriptor
        os.close(descriptor)  # its owner removed it in between: lock the new one


def _is_still_there(descriptor: int, path: Path) -> bool:
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def _remove_stale(path: Path) -> None:
    """Connects first: what answers is left alone, what does not is a leftover."""
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_socket():
        raise SocketPathError(f"{path} exists and is no socket", hint="choose another: tfctl --socket PATH start")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_LIMIT_S)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _unusable(path, error) from error
        else:
            raise _already_running(path, _peer_pid(probe))


def _peer_pid(connected: socket.socket) -> str:
    return str(int.from_bytes(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little"))


def _bind(path: Path, group: str | None) -> socket.socket:
    group_id = _group_id(group) if group else None
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mode is right from the first moment on: a chmod after bind would leave a gap.
    before = os.umask(0o177 if group_id is None else 0o117)
    try:
        bound.bind(str(path))
        if group_id is not None:
            os.chown(path, -1, group_id)
    except OSError as error:
        bound.close()
        raise _unusable(path, error) from error
    finally:
        os.umask(before)
    return bound


def _group_id(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise ConfigurationError(
            f"socket_group: there is no group {name!r}", hint=f"groupadd --system {name}", field="socket_group"
        ) from error


def _already_running(path: Path, pid: str | None) -> ConflictError:
    who = f" (pid {pid})" if pid else ""
    return ConflictError(f"a daemon is already running{who} on {path}", hint="tfctl status")


def _unusable(path: Path, error: OSError) -> SocketPathError:
    what = "its folder does not exist" if error.errno == errno.ENOENT else error.strerror
    return SocketPathError(
        f"cannot use the socket path {path}: {what}", hint="choose another: tfctl --socket PATH start"
    )
