"""Who is at the other end of the control socket, and what he may do: as the kernel says, never as the client does."""

import ctypes
import errno
import grp
import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

_PEER = struct.Struct("3i")  # pid, uid, gid
_SO_PEERGROUPS = 59  # asm-generic/socket.h; Python has no name for it
_MOST_BY_PYTHON_BYTES = 1024  # what socket.getsockopt takes at most: 256 groups
_MOST_GROUPS = 65_536  # NGROUPS_MAX
_ADMIN_ROUTES = frozenset({("POST", "/v1/shutdown")})
_READING_METHODS = frozenset({"GET", "HEAD"})


class Role(IntEnum):
    """What a user may do; each may do what the ones before it may."""

    VIEWER = 1  # look: status, requests, events, logs, metrics
    OPERATOR = 2  # act: start, stop, tune, pause, abort
    ADMIN = 3  # end the daemon

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Peer:
    """A process that has connected. `groups` are its primary and its supplementary ones."""

    pid: int
    uid: int
    groups: frozenset[int]

    def __str__(self) -> str:
        return f"uid={self.uid} pid={self.pid}"


@dataclass(frozen=True, slots=True)
class RoleGroups:
    """Group numbers that give a role. None: no such group."""

    operator: int | None = None
    admin: int | None = None

    @classmethod
    def named(cls, operator: str | None, admin: str | None) -> "RoleGroups":
        """Looked up once: a directory service that hangs must not hang requests."""
        return cls(operator=group_id(operator), admin=group_id(admin))


def role_of(peer: Peer, own_uid: int, groups: RoleGroups) -> Role:
    """Root and the daemon's own user are admins; whoever else may connect at all is a viewer, or more by a group."""
    if peer.uid in (0, own_uid) or groups.admin in peer.groups:
        return Role.ADMIN
    return Role.OPERATOR if groups.operator in peer.groups else Role.VIEWER


def role_needed(method: str, route: str) -> Role:
    """`route` as it is registered. What may change something takes an operator, also where nobody thought of it."""
    if (method, route) in _ADMIN_ROUTES:
        return Role.ADMIN
    return Role.VIEWER if method in _READING_METHODS else Role.OPERATOR


def group_id(name: str | None) -> int | None:
    """None without such a group."""
    try:
        return grp.getgrnam(name).gr_gid if name else None
    except KeyError:
        return None


def peer_of(connection: socket.socket) -> Peer:
    """As the kernel noted when it connected. Raises OSError on a socket that is not connected or not of UNIX."""
    pid, uid, gid = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return Peer(pid=pid, uid=uid, groups=frozenset([gid, *_supplementary(connection)]))


def _supplementary(connection: socket.socket) -> Iterable[int]:
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_BY_PYTHON_BYTES)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        return _many_groups(connection)
    return struct.unpack(f"{len(data) // 4}I", data)


def _many_groups(connection: socket.socket) -> list[int]:
    """Of somebody with more than 256 groups, as directory services make them."""
    found = (ctypes.c_uint32 * _MOST_GROUPS)()
    length = ctypes.c_uint32(ctypes.sizeof(found))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.getsockopt(connection.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, found, ctypes.byref(length)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return list(found[: length.value // 4])
