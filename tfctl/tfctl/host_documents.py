"""JSON documents about the host that tfctl runs on: the service's files, the doctor's checks, bug reports."""

from enum import StrEnum

import msgspec

from tokenflow.wire import Document


class FileState(StrEnum):
    """An installed file against what this installation would write."""

    ABSENT = "absent"
    SAME = "same"
    DIFFERS = "differs"


class ServiceFile(msgspec.Struct, kw_only=True):
    path: str
    state: FileState
    text: str


class ServiceDocument(Document, kw_only=True):
    """`tfctl service show|install|uninstall --json`: the files afterwards, and the commands that were run."""

    files: list[ServiceFile]
    commands: list[str]


class CheckState(StrEnum):
    """What a check has found. A check that could not be made is `skip`, and never `pass`."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


class Check(msgspec.Struct, kw_only=True):
    """`hint` is the next step of everything but a pass."""

    name: str
    state: CheckState
    message: str
    hint: str | None = None


class DoctorDocument(Document, kw_only=True):
    """`tfctl doctor --json`. `ok` is false where a check has failed, and the exit code is 1 then."""

    ok: bool
    checks: list[Check]


class BugreportDocument(Document, kw_only=True):
    """`tfctl bugreport --json`: the archive, and what is in it."""

    path: str
    size_bytes: int
    files: list[str]
