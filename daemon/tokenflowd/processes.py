"""Facts about processes, and ending them for certain.

A pid alone does not name a process: it is used again. Where a process is remembered, its start time is too.
"""

import asyncio
import ctypes
import os
import re
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from tokenflow.link import LINK_ENV

_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.25
_KILL_LIMIT_S = 5.0


def become_subreaper() -> None:
    """Orphans among our descendants become our children, so that they can be reaped wherever pid 1 does not do it."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third (state) on; empty when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return []
    return text.rpartition(b")")[2].decode("ascii", "replace").split()  # the name before may be cut within a character


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is no such process."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def boot_id() -> str:
    """Names this boot of the machine: pids and clocks of another one mean nothing. Empty where it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def user_id(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def is_alive(pid: int) -> bool:
    """False for zombies: what has ended but has not been reaped holds nothing any more."""
    fields = _stat_fields(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def is_stopped(pid: int) -> bool:
    """Stopped by a signal (SIGSTOP) or held by a debugger: it will not go on by itself."""
    return _stat_fields(pid)[:1] in (["T"], ["t"])


def is_same_process(pid: int, ticks: int) -> bool:
    return start_ticks(pid) == ticks and is_alive(pid)


def exit_status(pid: int) -> int | None:
    """A zombie's exit code, negative for a signal, as subprocess has it; None when it cannot be read (any more)."""
    fields = _stat_fields(pid)
    if not fields or fields[0] != "Z":
        return None
    status = int(fields[49])
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def describe_exit(code: int | None) -> str:
    """`was killed (signal 9)`, `exited with code 1`, or `is gone` where nobody can know."""
    if code is None:
        return "is gone"
    if code < 0:
        return f"was killed (signal {-code})"
    return f"exited with code {code}"


async def wait_for_exit(pid: int) -> None:
    """Returns as soon as the process has ended, also when it is nobody's child here. Costs nothing while it runs."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # forbidden by a sandbox, or a kernel without it
        while is_alive(pid):
            await asyncio.sleep(_POLL_S)
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def engine_processes(group: int, link_folder: Path | None) -> set[int]:
    """Every living process of an engine: its group, its session, and whoever carries its link in the environment.

    The environment finds those that left group and session. A process that renamed itself may have overwritten its
    environment; such a one is found among the descendants (`descendants`) before anything is killed.
    """
    mark = None
    if link_folder is not None:
        mark = re.compile(rb"(^|\0)" + re.escape(f"{LINK_ENV}={link_folder}".encode()) + rb"(\0|$)")
    return {pid for pid in psutil.pids() if pid != os.getpid() and is_alive(pid) and _belongs(pid, group, mark)}


def _belongs(pid: int, group: int, mark: re.Pattern[bytes] | None) -> bool:
    fields = _stat_fields(pid)
    if fields and group in (int(fields[2]), int(fields[3])):
        return True
    if mark is None:
        return False
    try:
        return mark.search(Path(f"/proc/{pid}/environ").read_bytes()) is not None
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    try:
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    except (psutil.Error, OSError):  # OSError: no descriptor is left
        return set()


def titles_of_children(pid: int) -> dict[int, str]:
    """The first word of each living child's command line: what it calls itself where it has given itself a title."""
    found = {}
    try:
        for child in psutil.Process(pid).children():
            found[child.pid] = next(iter(child.cmdline()), "")
    except (psutil.Error, OSError):
        pass  # one of them has just ended: the next look sees the rest
    return found


def children_outside_engines() -> set[int]:
    """Our descendants but for engines, which lead sessions of their own."""
    own_session = os.getsid(0)
    return {pid for pid in descendants(os.getpid()) if (fields := _stat_fields(pid)) and int(fields[3]) == own_session}


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def with_start_ticks(pids: Iterable[int]) -> dict[int, int]:
    """Pids as they can be remembered: with the start time of each."""
    return {pid: ticks for pid in pids if (ticks := start_ticks(pid)) is not None}


async def end_processes(group: int, link_folder: Path | None, known: Mapping[int, int], grace_s: float) -> set[int]:
    """SIGTERM to what is left of an engine, `grace_s` later SIGKILL; returns what even that did not end (normally {}).

    `known` are processes, with their start times, that may have left the group (descendants seen earlier).
    """
    remembered = dict(known)
    left = await _signal_until_gone(group, link_folder, remembered, signal.SIGTERM, grace_s)
    if left:
        left = await _signal_until_gone(group, link_folder, remembered, signal.SIGKILL, _KILL_LIMIT_S)
    return left


async def _signal_until_gone(
    group: int, link_folder: Path | None, remembered: dict[int, int], number: signal.Signals, limit_s: float
) -> set[int]:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + limit_s
    signalled: set[int] = set()
    while True:
        left = engine_processes(group, link_folder)
        left |= {pid for pid, ticks in remembered.items() if is_same_process(pid, ticks)}
        send(left - signalled, number)
        signalled |= left
        remembered.update(with_start_ticks(left))
        remaining_s = deadline_s - loop.time()
        if not left or remaining_s <= 0:
            return left
        await _wait_for_all(left, remaining_s)


async def _wait_for_all(pids: set[int], limit_s: float) -> None:
    waits = [asyncio.ensure_future(wait_for_exit(pid)) for pid in pids]
    try:
        await asyncio.wait(waits, timeout=limit_s)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def reap_orphans(pids: Iterable[int], group: int) -> None:
    """Collects those of `pids` and of the session or group `group`, but for its leader, that ended as our children
    (see `become_subreaper`): else they would be pid 1's to collect once we end, and not every pid 1 does."""
    try:
        ours = {child.pid for child in psutil.Process().children()}
    except (psutil.Error, OSError):
        ours = set()
    for pid in ({*pids} | {pid for pid in ours if _belongs(pid, group, None)}) - {group}:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass  # not ours: somebody else reaps it
