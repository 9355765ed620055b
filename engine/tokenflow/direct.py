"""An operator's hand on the engine's link, for when the daemon is dead and the engine goes on serving."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from tokenflow import link
from tokenflow.errors import (
    NotFoundError,
    OperationError,
    PermissionDeniedError,
    TimedOutError,
    UnsupportedError,
)
from tokenflow.locations import engine_records
from tokenflow.policy.states import Mode
from tokenflow.wire import ModeDocument, PluginState

DEFAULT_LIMIT_S = 5.0


class _Record(msgspec.Struct):
    """What is needed of the daemon's note about its engine."""

    link_folder: str
    pid: int
    profile: str | None = None


def ask_mode(explicit: Path | None, wanted: Mode | None, limit_s: float | None) -> ModeDocument:
    """Shows the mode, or sets it and reads it back. Raises TokenFlowErrors."""
    record, path = _find_record(explicit)
    until_s = time.monotonic() + (DEFAULT_LIMIT_S if limit_s is None else limit_s)
    schedulers = list(link.bound_sockets(Path(record.link_folder), link.SCHEDULER_SOCKET).values())
    if wanted is not None:
        who = f"uid={os.getuid()} pid={os.getpid()}, directly"
        _ask_all(schedulers, link.SetMode(mode=wanted, deadline_s=until_s, who=who), until_s, path)
    replies = _ask_all(schedulers, link.Ping(), until_s, path)
    at_it = [reply for reply in replies if reply.plugin is not PluginState.DISABLED] or replies
    modes = {reply.mode for reply in at_it}
    if len(modes) > 1:
        raise OperationError(
            f"the engine's schedulers are in modes {', '.join(sorted(str(mode) for mode in modes))}",
            hint="bring them together: tfctl mode off --direct",
        )
    return ModeDocument(profile=record.profile, mode=at_it[0].mode, revision=sum(reply.revision for reply in replies))


def _find_record(explicit: Path | None) -> tuple[_Record, Path]:
    """The first record that names a link that is there, and where it lies."""
    paths = engine_records(explicit)
    for path in paths:
        try:
            record = msgspec.json.decode(path.read_bytes(), type=_Record)
            if link.bound_sockets(Path(record.link_folder), link.SCHEDULER_SOCKET):
                return record, path
        except FileNotFoundError:
            continue
        except PermissionError as error:
            raise _denied(Path(error.filename or path)) from error
        except (OSError, msgspec.DecodeError) as error:
            raise OperationError(f"{path} cannot be read: {error}", hint="look for the engine: ps -ef") from error
    raise NotFoundError(
        f"no engine's link was found: no record in {' or '.join(map(str, paths))} names one",
        hint="is it of another daemon? name its socket: tfctl --socket PATH mode off --direct; or see: tfctl status",
    )


def _ask_all(schedulers: list[Path], command: link.Command, until_s: float, record: Path) -> list[link.Reply]:
    """At the same time: one that hangs must not keep the command from the others. Raises the first one's problem."""
    with ThreadPoolExecutor(len(schedulers)) as pool:
        asked = [pool.submit(_ask, scheduler, command, until_s, record) for scheduler in schedulers]
    return [answer.result() for answer in asked]


def _ask(scheduler: Path, command: link.Command, until_s: float, record: Path) -> link.Reply:
    try:
        import zmq
    except ImportError as error:
        raise UnsupportedError(
            "pyzmq is not installed here, and the engine's link speaks ZeroMQ",
            hint="run it with the tfctl of the engine's own environment, or: pip install pyzmq",
        ) from error
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.connect(f"ipc://{scheduler}")
        left_ms = _left_ms(until_s)
        if socket.poll(left_ms, zmq.POLLOUT):
            socket.send_multipart([b"1", link.encode(command)])
            if socket.poll(_left_ms(until_s)):
                return link.checked(link.decode_reply(socket.recv_multipart()[-1]), hint="tfctl mode off --direct")
    raise TimedOutError(
        f"the engine of {record} did not answer on its link within {left_ms / 1000:.1f} s: it is hung or has ended",
        hint="wait longer: tfctl --timeout 60 mode off --direct; or end it: tfctl stop",
    )


def _left_ms(until_s: float) -> int:
    return max(0, int(1000 * (until_s - time.monotonic())))


def _denied(path: Path) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"no permission to enter {path}: the engine's link is for its owner only",
        hint=f"become its owner: sudo -u '#{_owner(path)}' tfctl mode off --direct; or use sudo",
    )


def _owner(path: Path) -> int:
    for place in (path, *path.parents):
        try:
            return place.stat().st_uid
        except OSError:
            continue
    return 0
