"""Files in /dev/shm that an engine maps and, when it is killed, leaves behind: they hold memory until a reboot.

SGLang 0.5.23 makes `sglang_loads_*` there, Python's multiprocessing `sem.mp-*`. Only what a process of the engine has
been seen to map is taken for the engine's, and only once nobody maps it any more is it removed.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

_FOLDER = "/dev/shm/"

SharedFiles = dict[str, int]
"""Inodes by path: a file of the same name that somebody has made anew is another file."""


def mapped_by(pids: Iterable[int]) -> SharedFiles:
    """What these processes map now. Those that are gone, or somebody else's, map nothing that we could see."""
    found: SharedFiles = {}
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
        except OSError:
            continue
        for line in lines:
            fields = line.split(maxsplit=5)  # address, permissions, offset, device, inode, path
            if len(fields) == 6 and fields[5].startswith(_FOLDER) and not fields[5].endswith(" (deleted)"):
                found[fields[5]] = int(fields[4])
    return found


def remove_unused(files: SharedFiles, ended: Iterable[int] = ()) -> None:
    """Removes those that still exist, are ours and are mapped by nobody but `ended` (processes about to be gone)."""
    left = {path for path, inode in files.items() if _is_ours(path, inode)}
    if not left:
        return
    others = mapped_by(set(psutil.pids()) - set(ended))
    for path in left - others.keys():
        Path(path).unlink(missing_ok=True)


def _is_ours(path: str, inode: int) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return (info.st_ino, info.st_uid) == (inode, os.getuid())
