"""A recording of the live view: a line that says what it is, a line of JSON, then packed moments.

Each moment is `length, crc32` (two little-endian 32-bit numbers) and that many bytes of MessagePack (`Packed`). A file
that ends in the middle of one, because its writer was killed or the disk was full, is read up to there.
"""

import os
import struct
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from tokenflow.errors import ConfigurationError, OperationError, UsageError
from tokenflow.version import __version__
from tokenflow_tui.moment import Packed

MAGIC = b"tokenflow.recording/1\n"
_FAMILY = b"tokenflow.recording/"
MAX_BYTES = 256 * 2**20
_HEAD = struct.Struct("<II")
_MAX_MOMENT_BYTES = 64 * 2**20


class RecordingInfo(msgspec.Struct, kw_only=True):
    """The second line of the file."""

    version: str = __version__
    recorded_at: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """What was in a file. `problem` says why it ends early, if it does."""

    info: RecordingInfo
    moments: list[Packed]
    problem: str | None = None


class Recorder:
    """Writes moments until `max_bytes` are full; then `problem` says so, and the rest is dropped."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        """Raises UsageError where the file is there already, OperationError where it cannot be made."""
        self.path = path
        self.problem: str | None = None
        self._max_bytes = max_bytes
        try:
            self._file: Any = path.open("xb")
        except FileExistsError as error:
            raise UsageError(
                f"{path} is there already", hint=f"name another file, or look at it: tfctl top --replay {path}"
            ) from error
        except OSError as error:
            raise OperationError(
                f"cannot write {path}: {error.strerror}", hint="name another file: tfctl top --record FILE"
            ) from error
        info = RecordingInfo(recorded_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"))
        self._size_bytes = 0
        self._write(MAGIC + msgspec.json.encode(info) + b"\n")

    def take(self, packed: Packed) -> None:
        """Never raises: a full disk ends the recording and not the view."""
        if self.problem is None:
            body = msgspec.msgpack.encode(packed)
            self._write(_HEAD.pack(len(body), zlib.crc32(body)) + body)

    def _write(self, content: bytes) -> None:
        if self._size_bytes + len(content) > self._max_bytes:
            self.problem = f"the recording has ended: {self._max_bytes // 2**20} MiB are full"
            self.close()
            return
        try:
            self._file.write(content)
            self._file.flush()
            self._size_bytes += len(content)
        except OSError as error:
            self.problem = f"the recording has ended: {error.strerror}: {self.path}"
            self.close()

    def close(self) -> None:
        try:
            self._file.close()
        except OSError:
            pass  # what could be written is there


def read(path: Path) -> Recording:
    """Raises ConfigurationError for what is no recording, is of another version, or holds nothing."""
    try:
        with path.open("rb") as file:
            _check_magic(path, file.readline(len(MAGIC)))
            info = msgspec.json.decode(file.readline(4096), type=RecordingInfo)
            size_bytes = os.fstat(file.fileno()).st_size
            if size_bytes > 2 * MAX_BYTES:
                raise _unusable(path, f"is of {size_bytes // 2**20} MiB, more than a recording can be")
            moments, problem = _moments(file.read())
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}: {error.strerror}", hint="make one: tfctl top --record FILE"
        ) from error
    except msgspec.DecodeError as error:
        raise _unusable(path, f"has a damaged head ({error})") from error
    if not moments:
        raise _unusable(path, "holds no moment")
    return Recording(info, moments, problem)


def _moments(content: bytes) -> tuple[list[Packed], str | None]:
    moments: list[Packed] = []
    at = 0
    while at < len(content):
        head = content[at : at + _HEAD.size]
        length, crc = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, 0)
        body = content[at + _HEAD.size : at + _HEAD.size + length]
        if len(head) < _HEAD.size or length > _MAX_MOMENT_BYTES or len(body) < length or zlib.crc32(body) != crc:
            return moments, f"the recording is damaged after {len(moments)} moments"
        try:
            moments.append(msgspec.msgpack.decode(body, type=Packed))
        except msgspec.DecodeError:
            return moments, f"the recording is damaged after {len(moments)} moments"
        at += _HEAD.size + length
    return moments, None


def _check_magic(path: Path, line: bytes) -> None:
    if line == MAGIC:
        return
    if line.startswith(_FAMILY):
        wanted, found = MAGIC.decode().strip(), line.decode("ascii", "replace").strip()
        raise _unusable(path, f"is of another version: {found}; this tfctl reads {wanted}")
    raise _unusable(path, "is no recording of the live view")


def _unusable(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(f"{path} {why}", hint="make one: tfctl top --record FILE")
