"""The events of the engine and of the daemon itself, the last few thousand, for whoever asks and follows."""

import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime

from tokenflow.events import Event, EventKind, EventRow, Term
from tokenflowd.changes import Changes

KEPT_EVENTS = 5000
_LOOK_S = 5.0
_NO_TERMS: Mapping[str, Term] = {}


class EventBook:
    """A ring. Followers read from it at their own pace; one that is overtaken is told how many it has missed."""

    def __init__(self) -> None:
        self._ring: deque[EventRow] = deque(maxlen=KEPT_EVENTS)
        self._sequence = 0
        self._changes = Changes()

    def close(self) -> None:
        """Ends all followers."""
        self._changes.close()

    def note(
        self,
        kind: EventKind,
        *,
        rid: str | None = None,
        reason: str | None = None,
        who: str | None = None,
        terms: Mapping[str, Term] = _NO_TERMS,
        stamp_s: float | None = None,
    ) -> None:
        """`stamp_s`: CLOCK_MONOTONIC; now where it is not given."""
        self._sequence += 1
        self._ring.append(
            EventRow(
                sequence=self._sequence,
                at=_wall_time(stamp_s),
                kind=kind,
                rid=rid,
                reason=reason,
                who=who,
                terms=dict(terms),
            )
        )
        self._changes.notify()

    def last(self, count: int, kinds: frozenset[EventKind] | None = None) -> list[EventRow]:
        """The last `count` of these kinds (None: all), oldest first."""
        found = self._after(0, kinds)
        return found[len(found) - min(count, len(found)) :]

    async def follow(self, count: int, kinds: frozenset[EventKind] | None = None) -> AsyncIterator[EventRow]:
        """The last `count`, then each new one until the book is closed."""
        seen = self._sequence
        for row in self.last(count, kinds):
            yield row
        while not self._changes.is_closed:
            if self._sequence == seen:
                await self._changes.wait(_LOOK_S)
            first = self._ring[0].sequence if self._ring else seen + 1
            if first > seen + 1:
                yield _lost(first - seen - 1)
                seen = first - 1
            rows, seen_now = self._after(seen, kinds), self._sequence
            for row in rows:
                yield row
            seen = seen_now

    def _after(self, sequence: int, kinds: frozenset[EventKind] | None) -> list[EventRow]:
        newer = self._sequence - sequence
        rows: Iterable[EventRow] = self._ring
        if newer < len(self._ring):
            rows = [self._ring[index] for index in range(-newer, 0)]
        return [row for row in rows if kinds is None or row.kind in kinds or row.kind is EventKind.LOST]


class EventIntake:
    """Takes over one scheduler's events and notices when some never came. Made anew for each engine.

    `is_midway`: of an engine that another daemon has started, the first event that comes is the first one.
    `scheduler`: which of several it is from, told with each event that is of no request.
    """

    def __init__(self, book: EventBook, scheduler: int | None = None, *, is_midway: bool = False) -> None:
        self._book = book
        self._scheduler = scheduler
        self._next: int | None = None if is_midway else 1

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            if self._next is None:
                self._next = event.sequence
            if event.sequence < self._next:
                continue
            if event.sequence > self._next:
                lost = {"lost_count": event.sequence - self._next}
                self._book.note(EventKind.LOST, reason="the daemon was too slow", terms=lost, stamp_s=event.stamp_s)
            self._next = event.sequence + 1
            is_told = self._scheduler is not None and event.rid is None
            self._book.note(
                event.kind,
                rid=event.rid,
                reason=event.reason,
                who=event.who,
                terms=event.terms | {"scheduler": self._scheduler} if is_told else event.terms,
                stamp_s=event.stamp_s,
            )


def _lost(count: int) -> EventRow:
    """Told to one follower only, so it has no number in the book."""
    return EventRow(
        sequence=0, at=_wall_time(None), kind=EventKind.LOST, reason="you were too slow", terms={"lost_count": count}
    )


def _wall_time(stamp_s: float | None) -> str:
    age_s = 0.0 if stamp_s is None else max(0.0, time.monotonic() - stamp_s)
    moment = datetime.fromtimestamp(time.time() - age_s, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
