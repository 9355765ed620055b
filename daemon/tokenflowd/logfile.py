"""The engine's log file: turned over at each start and when it is large, read from its end, followed across turns."""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

KEPT_LOGS = 3
_BLOCK_BYTES = 64 * 1024
_MAX_LINE_BYTES = 64 * 1024
_POLL_S = 0.25


def rotate(path: Path) -> None:
    """`engine.log` → `engine.log.1` → … The oldest goes."""
    _move_older(path)
    if path.exists():
        path.replace(path.with_name(f"{path.name}.1"))


def turn_over(path: Path, limit_bytes: int) -> bool:
    """Moves the text of a log of over `limit_bytes` into `engine.log.1` and empties it in place: the engine goes on
    writing into the same file (it appends). True when that was done. Lines that come between the copy and the emptying
    are lost. On a full disk the old text is given up: the room counts more."""
    try:
        if path.stat().st_size <= limit_bytes:
            return False
        _move_older(path)
        copy = path.with_name(f"{path.name}.1")
        try:
            shutil.copyfile(path, copy)
            copy.chmod(0o600)
        except OSError:
            copy.unlink(missing_ok=True)
        os.truncate(path, 0)
    except OSError:
        return False
    return True


def _move_older(path: Path) -> None:
    for number in range(KEPT_LOGS - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))


def split_lines(text: str) -> list[str]:
    """Progress bars redraw their line with carriage returns: each drawing counts as a line, empty ones do not."""
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


def _tail(descriptor: int, end: int, count: int) -> bytes:
    """The bytes before `end` that hold at least the last `count` lines, read in blocks from the end."""
    data = b""
    position = end
    while position > 0 and data.count(b"\n") <= count:
        start = max(0, position - _BLOCK_BYTES)
        data = os.pread(descriptor, position - start, start) + data
        position = start
    return data


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` lines, reading no more of the file than they take. Empty without a file."""
    reader = LogReader(path)
    try:
        return reader.last_lines(count, is_partial_shown=True)
    finally:
        reader.close()


class LogReader:
    """Reads what was appended since the last call; goes over to the new file once the old one has been moved away."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._rest = b""

    def last_lines(self, count: int, is_partial_shown: bool = False) -> list[str]:
        """The last `count` lines; `read` goes on behind them. Empty without a file."""
        if self._descriptor is None and not self._open():
            return []
        end = os.lseek(self._require(), 0, os.SEEK_END)
        data = _tail(self._require(), end, count)
        complete = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._rest = data[complete:]
        lines = split_lines((data if is_partial_shown else data[:complete]).decode(errors="replace"))
        return lines[-count:] if count > 0 else []

    def _open(self) -> bool:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        return True

    def _require(self) -> int:
        assert self._descriptor is not None
        return self._descriptor

    def _was_moved(self) -> bool:
        """Another file lies there now, or this one has been emptied."""
        try:
            mine = os.fstat(self._require())
            was_emptied = mine.st_size < os.lseek(self._require(), 0, os.SEEK_CUR)
            return was_emptied or self._path.stat().st_ino != mine.st_ino
        except OSError:
            return False  # moved away and not yet made anew: the open one may still grow

    def read(self) -> list[str]:
        """The complete lines that are new. Never blocks on a regular file for long."""
        if self._descriptor is None and not self._open():
            return []
        lines = self._drain()
        if not lines and self._was_moved():
            os.close(self._require())
            self._descriptor, self._rest = None, b""
            if self._open():
                lines = self._drain()
        return lines

    def _drain(self) -> list[str]:
        data = self._rest + os.read(self._require(), _BLOCK_BYTES)
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if end == 0 and len(data) > _MAX_LINE_BYTES:
            end = len(data)  # a line without an end must not grow for ever
        self._rest = data[end:]
        return split_lines(data[:end].decode(errors="replace"))

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


async def follow(path: Path, count: int, is_over: Callable[[], bool]) -> AsyncIterator[str]:
    """The last `count` lines and then each new one, until `is_over` or until the caller has had enough."""
    reader = LogReader(path)
    try:
        lines = reader.last_lines(count)
        while not is_over():
            for line in lines:
                yield line
            lines = reader.read()
            if not lines:
                await asyncio.sleep(_POLL_S)
    finally:
        reader.close()
