"""The manifest of a folder that TokenFlow made: what was written, so that damage is noticed later."""

import hashlib
import os
from pathlib import Path

import msgspec

FILE_NAME = "tokenflow-manifest.json"


class FileRecord(msgspec.Struct, frozen=True):
    size_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    source: str  # what the folder was made from
    files: dict[str, FileRecord]


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(folder: Path, source: str) -> None:
    """Records every file of `folder`. The manifest is written last and at once, so it vouches for whole files only."""
    files = {path.name: FileRecord(path.stat().st_size, sha256_of(path)) for path in sorted(folder.iterdir())}
    body = msgspec.json.format(msgspec.json.encode(Manifest(source=source, files=files)), indent=2)
    partial = folder / f"{FILE_NAME}.partial"
    partial.write_bytes(body + b"\n")
    os.replace(partial, folder / FILE_NAME)


def verify(folder: Path, thorough: bool) -> list[str]:
    """What is wrong with a folder, one line each; empty when it is as it was made.

    Quick: every file is there with its size. Thorough: its SHA-256 is compared too (0.2 s for the demo model where
    the processor has SHA instructions, about 1 s elsewhere).
    """
    try:
        manifest = msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=Manifest)
    except FileNotFoundError:
        return [f"{FILE_NAME} is missing: the folder was not finished"]
    except (OSError, msgspec.DecodeError) as error:
        return [f"{FILE_NAME} cannot be read: {error}"]
    problems = [_compare(folder / name, record, thorough) for name, record in manifest.files.items()]
    return [problem for problem in problems if problem is not None]


def _compare(path: Path, record: FileRecord, thorough: bool) -> str | None:
    try:
        size_bytes = path.stat().st_size
        if size_bytes != record.size_bytes:
            return f"{path.name} has {size_bytes} bytes instead of {record.size_bytes}"
        if thorough and sha256_of(path) != record.sha256:
            return f"{path.name} has other contents than were written"
    except FileNotFoundError:
        return f"{path.name} is missing"
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}"
    return None
