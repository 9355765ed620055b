"""What `tfctl bugreport` looks back on: status, live rows and events every few seconds, on disk, bounded in
size and age.

Lines of JSON in `flight.jsonl`; a full one is packed into `flight-STAMP.jsonl.gz`, and the oldest of those go. Ids,
counts, times and enums only, as everywhere on the operators' side.
"""

import asyncio
import gzip
import os
import shutil
import time
from pathlib import Path

import msgspec
import structlog

from tokenflow.events import EventRow
from tokenflow.wire import EngineState, RequestRow, StatusDocument, stamp
from tokenflowd.event_book import EventBook
from tokenflowd.queries import RequestQuery
from tokenflowd.snapshot import Snapshots

log = structlog.get_logger()
INTERVAL_S = 5.0
SEGMENT_BYTES = 1024 * 1024
KEPT_ROWS = 64  # of each moment, least runway first
_MODE = 0o600


class Moment(msgspec.Struct, kw_only=True):
    """One line. `events` are those since the line before."""

    schema: str = "tokenflow.flight/1"
    status: StatusDocument
    requests: list[RequestRow]
    events: list[EventRow]


class FlightRecorder:
    """`run` until it is cancelled. A disk that is full or gone is told once, and stops nothing."""

    def __init__(
        self, folder: Path, snapshots: Snapshots, events: EventBook, *, limit_bytes: int, limit_age_s: float
    ) -> None:
        self._store = FlightStore(folder, limit_bytes, limit_age_s)
        self._snapshots = snapshots
        self._events = events
        self._seen = 0
        self._has_failed = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            moment = self._moment()
            if moment is not None:
                await self._keep(msgspec.json.encode(moment) + b"\n")

    def _moment(self) -> Moment | None:
        """None while there is no engine and nothing has happened."""
        status = self._snapshots.status()
        events = [row for row in self._events.last(KEPT_ROWS * 4) if row.sequence > self._seen]
        if status.engine.state is EngineState.STOPPED and not events:
            return None
        self._seen = max((row.sequence for row in events), default=self._seen)
        rows = self._snapshots.requests(RequestQuery(limit=KEPT_ROWS)).requests
        return Moment(status=stamp(status), requests=rows, events=events)

    async def _keep(self, line: bytes) -> None:
        try:
            await asyncio.to_thread(self._store.append, line, time.time())
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                log.warning("flight_recorder_stopped", folder=str(self._store.folder), problem=error.strerror)


class FlightStore:
    """The files. `append` may raise OSError; what could not be written is lost, and the next call tries again."""

    def __init__(self, folder: Path, limit_bytes: int, limit_age_s: float) -> None:
        self.folder = folder
        self._limit_bytes = limit_bytes
        self._limit_age_s = limit_age_s
        self._open = folder / "flight.jsonl"

    def append(self, line: bytes, now_s: float) -> None:
        """`now_s`: wall time, which names the files and tells their age."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self._open, "ab", opener=_private) as file:
            file.write(line)
            size_bytes = file.tell()
        if size_bytes >= min(SEGMENT_BYTES, self._limit_bytes):
            self._pack(now_s)
        self._prune(now_s)

    def _pack(self, now_s: float) -> None:
        packed = self.folder / f"flight-{int(now_s * 1000):015d}.jsonl.gz"
        draft = packed.with_name(f".{packed.name}")
        try:
            with (
                open(self._open, "rb") as source,
                open(draft, "wb", opener=_private) as target,
                gzip.GzipFile(fileobj=target, mode="wb", filename="", mtime=0) as writer,
            ):
                shutil.copyfileobj(source, writer)
            draft.replace(packed)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        finally:
            self._open.unlink(missing_ok=True)  # on a full disk too: it must not grow without end

    def _prune(self, now_s: float) -> None:
        packed = sorted(self.folder.glob("flight-*.jsonl.gz"))
        sizes = {path: path.stat().st_size for path in packed}
        room_bytes = self._limit_bytes - SEGMENT_BYTES
        for path in packed:
            written_s = int(path.name.split("-")[1].split(".")[0]) / 1000
            if sum(sizes.values()) > max(0, room_bytes) or now_s - written_s > self._limit_age_s:
                path.unlink(missing_ok=True)
                del sizes[path]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, _MODE)
