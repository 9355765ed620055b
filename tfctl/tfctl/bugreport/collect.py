"""The parts of a bug report, each of which may fail for itself: what could not be had is said in its place."""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tfctl.bugreport import redact
from tfctl.client import Client
from tfctl.daemon import daemon_log
from tfctl.host_documents import DoctorDocument
from tfctl.profiles import read_profile
from tfctl.session import Session
from tokenflow.errors import TokenFlowError
from tokenflow.events import EventRow
from tokenflow.locations import engine_record, settings_files, system_socket, user_socket
from tokenflow.tuning import TunablesDocument
from tokenflow.version import __version__
from tokenflow.wire import RequestsDocument, StatusDocument, stamp

_TAIL_BYTES = 512 * 1024
_EVENTS = 5000
_PREFIXES = ("TOKENFLOW_", "SGLANG_", "CUDA_", "NCCL_", "TORCH", "HF_", "OMP_")


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the archive."""

    name: str
    content: bytes


def parts(session: Session, duration_s: float, report: Callable[[str], None]) -> Iterator[Part]:
    """Every part, redacted. Works with the daemon down."""
    client = _client(session)
    record = engine_record(client.path if client is not None else session.options.socket or user_socket())
    if client is not None and client.path == system_socket():
        record = engine_record(system_socket())
    yield _made("about.json", about)
    report("asking the doctor")
    yield _made("doctor.json", lambda: _doctor(session))
    if client is None:
        yield Part("daemon.txt", b"no daemon answers\n")
    else:
        report("asking the daemon")
        yield from _of_daemon(client)
        if duration_s > 0:
            report(f"watching for {duration_s:g} s")
            yield _made("watch.jsonl", lambda: _watch(client, duration_s))
    for path in settings_files():
        if path.is_file():
            yield _made(f"settings/{path.parent.name}-{path.name}", partial(_text_of, path))
    yield from _of_state(record)


def about() -> bytes:
    """What this was made on and by."""
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(_PREFIXES)}
    facts = {
        "tokenflow": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "environment": variables,
        "prefix": sys.prefix,
    }
    return _redacted(msgspec.json.format(msgspec.json.encode(facts)).decode())


def _client(session: Session) -> Client | None:
    try:
        return session.find()
    except TokenFlowError:
        return None


def _doctor(session: Session) -> bytes:
    from tfctl.doctor.run import run

    checks = run(session, None)
    document = DoctorDocument(ok=all(check.state != "fail" for check in checks), checks=checks)
    return _json(stamp(document))


def _of_daemon(client: Client) -> Iterator[Part]:
    yield _made("status.json", lambda: _json(client.get("/v1/status", StatusDocument)))
    yield _made("requests.json", lambda: _json(client.get("/v1/requests", RequestsDocument, {"all": 1})))
    yield _made("tunables.json", lambda: _json(client.get("/v1/tunables", TunablesDocument)))
    yield _made("events.jsonl", lambda: _lines(client.stream("/v1/events", EventRow, {"n": _EVENTS}, silence_s=10.0)))
    yield _made("metrics.txt", lambda: _redacted(client.get_text("/metrics")))
    yield _made("profile.toml", lambda: _profile(client))


def _profile(client: Client) -> bytes:
    name = client.get("/v1/status", StatusDocument).engine.profile
    if name is None:
        return b"# no engine, no profile\n"
    return _redacted(read_profile(name)[1])


def _watch(client: Client, duration_s: float) -> bytes:
    until_s = time.monotonic() + duration_s
    lines = []
    for document in client.stream("/v1/status", StatusDocument, {"watch": 1.0}, silence_s=30.0):
        lines.append(_redacted(msgspec.json.encode(document).decode()))
        if time.monotonic() >= until_s:
            break
    return b"\n".join(lines) + b"\n"


def _of_state(record: Path) -> Iterator[Part]:
    """What the daemon has kept on the disk."""
    log = record.with_suffix(".log")
    for path in (log, log.with_name(f"{log.name}.1")):
        if _is_there(path):
            name = f"logs/{path.name}"
            yield _made(name, partial(_engine_log, path))
    if _is_there(daemon_log()):
        yield _made("logs/daemon.log", lambda: _redacted(_tail(daemon_log())))
    for folder in (record.with_name(f"{record.stem}-flight"), record.with_name(f"{record.stem}-crashes")):
        kind = folder.name.rpartition("-")[2]
        try:
            paths = sorted(folder.iterdir()) if _is_there(folder) else []
        except OSError as error:
            yield _missing(kind, error)
            continue
        for path in paths:
            if not path.name.startswith("."):
                yield _made(f"{kind}/{path.name}", path.read_bytes)


def _is_there(path: Path) -> bool:
    """True also for what this user may not look at: the report has to say that it lacks it."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return True


def _made(name: str, make: Callable[[], bytes]) -> Part:
    try:
        return Part(name, make())
    except (TokenFlowError, OSError, ValueError) as error:
        return _missing(name, error)


def _missing(name: str, error: Exception) -> Part:
    return Part(f"{name}.missing.txt", _redacted(f"could not be had: {type(error).__name__}: {error}\n"))


def _text_of(path: Path) -> bytes:
    return _redacted(path.read_text(encoding="utf-8", errors="replace"))


def _engine_log(path: Path) -> bytes:
    return "\n".join(redact.engine_lines(_tail(path).splitlines())).encode()


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, size_bytes - _TAIL_BYTES))
        return file.read().decode(errors="replace")


def _json(document: Any) -> bytes:  # noqa: ANN401 - any struct
    return _redacted(msgspec.json.format(msgspec.json.encode(document)).decode())


def _lines(rows: Iterator[Any]) -> bytes:
    return b"".join(_redacted(msgspec.json.encode(row).decode()) + b"\n" for row in rows)


def _redacted(content: str) -> bytes:
    return redact.text(content, Path.home()).encode()
