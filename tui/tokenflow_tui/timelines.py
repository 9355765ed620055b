"""What each request did when: the runs, pauses and loads that the view has seen, and those that events tell of."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tokenflow.events import EventKind, EventRow
from tokenflow.policy.states import RequestState
from tokenflow.wire import RequestRow
from tokenflow_tui.moment import Moment

_KEPT_REQUESTS = 4096
_KEPT_SPANS = 256
_KEPT_EVENTS = 64
_STATES_AFTER = {EventKind.PREEMPTED: RequestState.PREEMPTED, EventKind.RESUMED: RequestState.RUNNING}


@dataclass(slots=True)
class Timeline:
    """`spans`: when a state was first seen, wall time, oldest first. `first_s` and `last_s`: when the request was
    first and last seen."""

    spans: list[tuple[float, RequestState]] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    row: RequestRow | None = None
    first_s: float = 0.0
    last_s: float = 0.0

    def state_at(self, at_s: float) -> RequestState | None:
        """None before the request was seen, and after it was gone."""
        if not self.spans or at_s > self.last_s:
            return None
        found = None
        for since_s, state in self.spans:
            if since_s > at_s:
                break
            found = state
        return found

    def take_event(self, event: EventRow) -> None:
        """What happened before the view looked is known by its events alone: pauses, and returns."""
        self.events.append(event)
        del self.events[:-_KEPT_EVENTS]
        state = _STATES_AFTER.get(event.kind)
        at_s = datetime.fromisoformat(event.at).timestamp()
        if state is not None and at_s < self.first_s:
            self.spans.insert(bisect_left(self.spans, at_s, key=lambda span: span[0]), (at_s, state))


class Timelines:
    """One a request, the most lately seen few thousand."""

    def __init__(self) -> None:
        self._lines: dict[str, Timeline] = {}

    def take(self, moment: Moment) -> None:
        """Moments come in order of time; after a jump: `rebuild`."""
        rows: Sequence[RequestRow] = moment.requests.requests if moment.requests is not None else ()
        for row in rows:
            line = self._lines.pop(row.rid, None) or Timeline(first_s=moment.at_s)
            self._lines[row.rid] = line  # at the end: those that were not seen for longest are the first to go
            line.row, line.last_s = row, moment.at_s
            if not line.spans or line.spans[-1][1] is not row.state:
                line.spans.append((moment.at_s, row.state))
                del line.spans[:-_KEPT_SPANS]
        for event in moment.events:
            if event.rid is not None and event.rid in self._lines:
                self._lines[event.rid].take_event(event)
        while len(self._lines) > _KEPT_REQUESTS:
            del self._lines[next(iter(self._lines))]

    def rebuild(self, moments: Sequence[Moment]) -> None:
        self._lines.clear()
        for moment in moments:
            self.take(moment)

    def of(self, rid: str) -> Timeline | None:
        return self._lines.get(rid)
