"""Limits and resources of the machine. `root` is the root of the file system that is read: another one in tests."""

import ctypes
import mmap
import os
import resource
from pathlib import Path

from tfctl.doctor.answer import failed, passed, size, skipped, warned
from tfctl.host_documents import Check

_ROOT = Path("/")
ENGINE_BYTES = 2_700_000_000
"""What the demo engine takes, measured; a real model takes more."""
_PROBE_BYTES = 64 * 1024 * 1024
_SHM_LEAST_BYTES = 1024**3
_FILES_LEAST = 4096
_DISK_WARN_BYTES, _DISK_FAIL_BYTES = 1024**3, 64 * 1024**2
_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised


def memory(root: Path = _ROOT) -> Check:
    """What is available to this process: of the machine, and of each control group that it is in."""
    available_bytes, where = _available_bytes(root), "the machine"
    for group in _groups(root):
        headroom_bytes = _group_headroom_bytes(group)
        if headroom_bytes is not None and (available_bytes is None or headroom_bytes < available_bytes):
            available_bytes, where = headroom_bytes, f"its control group {group}"
    if available_bytes is None:
        return skipped("memory", "/proc/meminfo does not say what is available", "free -h")
    message = f"{size(available_bytes)} of system memory available, bounded by {where}"
    if available_bytes < ENGINE_BYTES:
        return warned(
            "memory",
            f"{message}; the demo engine takes {size(ENGINE_BYTES)}",
            "this is system memory, not the GPU's: free some, or raise the limit (docker run --memory, MemoryMax=); "
            "a smaller host pool: --hicache-ratio or --hicache-size in the profile's args",
        )
    return passed("memory", message)


def _available_bytes(root: Path) -> int | None:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else None


def _groups(root: Path) -> list[Path]:
    """The control group of this process and those above it (cgroup v2), the innermost first."""
    try:
        line = next(line for line in (root / "proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return []
    base = root / "sys/fs/cgroup"
    folder = base / line.removeprefix("0::").lstrip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(base))]


def _group_headroom_bytes(group: Path) -> int | None:
    try:
        limit, used = (group / "memory.max").read_text().strip(), (group / "memory.current").read_text()
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None


def locked_memory(has_gpu: bool) -> Check:
    """The host pool of KV is pinned where there is a GPU."""
    soft_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft_bytes == resource.RLIM_INFINITY:
        return passed("memlock", "no limit on locked memory")
    message = f"at most {size(soft_bytes)} of memory may be locked"
    if not has_gpu:
        return skipped("memlock", f"{message}; without a GPU nothing is pinned", "on a GPU host: LimitMEMLOCK=infinity")
    return warned(
        "memlock",
        f"{message}; the host pool of KV is pinned",
        "LimitMEMLOCK=infinity in the unit, ulimit -l unlimited, or docker run --ulimit memlock=-1",
    )


def pinned_probe() -> Check:
    """Locks a little memory for a moment, as a pinned allocation does."""
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(-1, _PROBE_BYTES) as area:
        first = ctypes.c_char.from_buffer(area)
        address = ctypes.c_void_p(ctypes.addressof(first))
        result = libc.mlock(address, ctypes.c_size_t(_PROBE_BYTES))
        problem = os.strerror(ctypes.get_errno())
        if result == 0:
            libc.munlock(address, ctypes.c_size_t(_PROBE_BYTES))
        del first  # the mapping cannot be closed while something points into it
    if result == 0:
        return passed("pinned", f"{size(_PROBE_BYTES)} could be locked")
    return warned("pinned", f"{size(_PROBE_BYTES)} could not be locked: {problem}", "raise the limit: see memlock")


def shared_memory(root: Path = _ROOT) -> Check:
    folder = root / "dev/shm"
    try:
        disk = os.statvfs(folder)
    except OSError as error:
        return failed("shm", f"{folder} cannot be used: {error.strerror}", "mount -t tmpfs tmpfs /dev/shm")
    total_bytes, free_bytes = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    message = f"/dev/shm holds {size(total_bytes)}, {size(free_bytes)} free"
    if free_bytes < _SHM_LEAST_BYTES:
        return warned(
            "shm", f"{message}; NCCL and SGLang's ranks share memory there", "docker run --shm-size 8g, or --ipc host"
        )
    return passed("shm", message)


def open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    message = f"{soft} files may be open at once"
    if soft < _FILES_LEAST:
        return warned("files", f"{message}; each stream takes some", f"ulimit -n {max(hard, _FILES_LEAST)}")
    return passed("files", message)


def huge_pages(root: Path = _ROOT) -> Check:
    path = root / "sys/kernel/mm/transparent_hugepage/enabled"
    try:
        text = path.read_text()
    except OSError:
        return skipped("hugepages", f"{path} cannot be read", "cat /sys/kernel/mm/transparent_hugepage/enabled")
    chosen = text.partition("[")[2].partition("]")[0]
    if chosen == "never":
        hint = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        return warned("hugepages", "transparent huge pages are off: a large host pool is slower to pin and copy", hint)
    return passed("hugepages", f"transparent huge pages: {chosen or text.strip()}")


def clock() -> Check:
    """Whether the wall clock is synchronised, as the kernel says. Of ours only the stamps of logs depend on it."""
    libc = ctypes.CDLL(None, use_errno=True)
    state = libc.adjtimex(ctypes.create_string_buffer(512))  # all zero: asks, changes nothing
    if state < 0:
        return skipped("clock", f"the kernel does not say: {os.strerror(ctypes.get_errno())}", "timedatectl")
    if state == _TIME_ERROR:
        hint = "timedatectl set-ntp true; in a container it is the host's"
        return warned("clock", "the clock is not synchronised: stamps of logs will not match other hosts'", hint)
    return passed("clock", "the clock is synchronised")


def disk(name: str, folder: Path) -> Check:
    """Room where state or models are written. A folder that is not there yet: of the one it will be made in."""
    existing = next((path for path in (folder, *folder.parents) if path.is_dir()), Path("/"))
    try:
        room = os.statvfs(existing)
    except OSError as error:
        return failed(name, f"{existing} cannot be used: {error.strerror}", f"ls -ld {existing}")
    free_bytes = room.f_bavail * room.f_frsize
    message = f"{size(free_bytes)} free for {folder}"
    if not os.access(existing, os.W_OK):
        return failed(name, f"{existing} cannot be written by uid {os.getuid()}", f"ls -ld {existing}")
    if free_bytes < _DISK_FAIL_BYTES:
        return failed(name, message, f"df -h {existing}; the engine's logs: {folder}/engine.log*")
    if free_bytes < _DISK_WARN_BYTES:
        return warned(name, message, f"df -h {existing}")
    return passed(name, message)
