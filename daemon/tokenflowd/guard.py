"""What stands before every request on the control socket: may this user do that; and who has done it.

Every request that may change something leaves one line in the daemon's log, refused ones too: `audit` with uid, pid,
role, the request, its outcome (`done`, or the code of the error), and what the route adds (`note`): what, old, new.
"""

import os
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from tokenflow.errors import PermissionDeniedError, TokenFlowError
from tokenflowd import logcontext
from tokenflowd.identity import Peer, Role, RoleGroups, peer_of, role_needed, role_of

log = structlog.get_logger()
DONE = "done"


@dataclass(frozen=True, slots=True)
class RoleNames:
    """The names of the groups that give a role; empty: no group does."""

    operator: str
    admin: str

    def groups(self) -> RoleGroups:
        return RoleGroups.named(self.operator, self.admin)

    def way_to(self, role: Role) -> str:
        """What a user does to get that role."""
        name = self.operator if role is Role.OPERATOR else self.admin
        other = "use sudo, or the user that runs the daemon"
        return f"sudo usermod -aG {name} $USER, then log in again; or {other}" if name else other


@dataclass(slots=True)
class _Request:
    """One request: who asks, what that user may do, and what the audit line says of it."""

    what: str
    peer: Peer
    role: Role
    names: RoleNames
    notes: dict[str, object] = field(default_factory=dict)

    def require(self, needed: Role) -> None:
        if self.role < needed:
            raise PermissionDeniedError(
                f"{self.what} is not for everybody: it takes the role {needed}, and uid {self.peer.uid} "
                f"has the role {self.role}",
                hint=self.names.way_to(needed),
            )

    def audit(self, outcome: str) -> None:
        who = {"uid": self.peer.uid, "pid": self.peer.pid, "role": str(self.role)}
        log.info("audit", **who, request=self.what, outcome=outcome, **self.notes)


_current: ContextVar[_Request] = ContextVar("tokenflow_request")


def make_guard(names: RoleNames) -> Middleware:
    """The middleware. Groups are looked up now and not for each request."""
    groups, own_uid = names.groups(), os.getuid()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        peer, route = _peer(request), _route(request)
        asked = _Request(f"{request.method} {route}", peer, role_of(peer, own_uid, groups), names)
        _current.set(asked)  # each request has a task, and so a context, of its own
        logcontext.bind(uid=peer.uid, rid=request.match_info.get("rid"))
        needed = role_needed(request.method, route)
        if needed is Role.VIEWER:
            return await handler(request)
        outcome = "cancelled"  # its client has left; whether it was carried out, the events say
        try:
            asked.require(needed)
            response = await handler(request)
            outcome = DONE
        except TokenFlowError as error:
            outcome = error.code
            raise
        except web.HTTPException as error:
            outcome = str(error.status)
            raise
        except Exception:
            outcome = "internal"
            raise
        finally:
            asked.audit(outcome)
        return response

    return guard


def note(what: str, old: object = None, new: object = None) -> None:
    """For the audit line. `old` and `new` are plain values: no text of a prompt, no secret."""
    _current.get().notes = {"what": what, "old": old, "new": new}


def require(role: Role) -> None:
    """For a request that takes more because of what is in it. Raises PermissionDeniedError."""
    _current.get().require(role)


def caller() -> str:
    """Who asks, as the kernel says: `uid=1000 pid=4711`."""
    return str(_current.get().peer)


def _peer(request: web.Request) -> Peer:
    connection: Any = request.transport.get_extra_info("socket") if request.transport else None
    if connection is None:
        raise ConnectionResetError("the client has left")
    return peer_of(connection)


def _route(request: web.Request) -> str:
    """As it is registered; the path itself for one that is not."""
    resource = request.match_info.route.resource
    return request.path if resource is None else resource.canonical
