"""What a change of the tunables did to readers: as long after it as before it, told as an event."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenflow.events import EventKind, Term
from tokenflow.link import Telemetry
from tokenflow.rows import stall_s_total
from tokenflowd.event_book import EventBook
from tokenflowd.lifecycle import EngineLifecycle

_SAMPLE_S = 1.0
_MINUTE_S = 60.0
_LEAST_WINDOW_S = 2 * _SAMPLE_S
_HISTORY_RATIO = 2.0  # of the window: before and after


@dataclass(frozen=True, slots=True)
class Sample:
    """Of one moment (CLOCK_MONOTONIC). The first two are totals since the engine's start."""

    stamp_s: float
    stall_s: float
    preemption_count: int
    made_tok_s: float


@dataclass(frozen=True, slots=True)
class _Change:
    stamp_s: float
    values: Mapping[str, tuple[Any, Any]]
    who: str | None
    pid: int  # of the scheduler that it was made in


class QualityHistory:
    """The readers' experience of one scheduler, second by second, for as long as `kept_s`."""

    def __init__(self, kept_s: float, pid: int | None = None) -> None:
        self.pid = pid  # of the scheduler
        self._kept_s = kept_s
        self._samples: deque[Sample] = deque()
        self._first_tokens: deque[tuple[float, float]] = deque()  # (when it came, TTFT)
        self._seen: set[str] = set()

    def take(self, telemetry: Telemetry, now_s: float) -> None:
        quality = telemetry.quality
        self._samples.append(Sample(now_s, stall_s_total(telemetry), quality.preemption_total, quality.raw_tok_s))
        present = set()
        for stream in telemetry.streams:
            present.add(stream.rid)
            if stream.rid not in self._seen and stream.buffer.rate_tok_s is not None and stream.ttft_s is not None:
                self._first_tokens.append((stream.arrival_s + stream.ttft_s, stream.ttft_s))
                self._seen.add(stream.rid)
        self._seen &= present
        while self._samples and now_s - self._samples[0].stamp_s > self._kept_s:
            self._samples.popleft()
        while self._first_tokens and now_s - self._first_tokens[0][0] > self._kept_s:
            self._first_tokens.popleft()

    def figures(self, since_s: float, until_s: float) -> dict[str, Term]:
        """Of the samples in between; null where there were none, and TTFT where no stream got its first token."""
        samples = [sample for sample in self._samples if since_s <= sample.stamp_s <= until_s]
        ttfts_s = sorted(ttft_s for stamp_s, ttft_s in self._first_tokens if since_s <= stamp_s <= until_s)
        span_s = samples[-1].stamp_s - samples[0].stamp_s if samples else 0.0
        found: dict[str, Term] = {
            "window_s": round(span_s, 1),
            "first_token_count": len(ttfts_s),
            "ttft_p50_s": _quantile(ttfts_s, 0.5),
            "ttft_p99_s": _quantile(ttfts_s, 0.99),
            "stall_s_per_min": None,
            "preemptions_per_min": None,
            "made_tok_s": None,
        }
        if span_s >= _LEAST_WINDOW_S:
            minutes = span_s / _MINUTE_S
            found["stall_s_per_min"] = round(max(0.0, samples[-1].stall_s - samples[0].stall_s) / minutes, 3)
            preemptions = samples[-1].preemption_count - samples[0].preemption_count
            found["preemptions_per_min"] = round(preemptions / minutes, 2)
            found["made_tok_s"] = round(sum(sample.made_tok_s for sample in samples) / len(samples), 2)
        return found


class Effects:
    """Follows the engine's telemetry; one event a change, when its window is over."""

    def __init__(self, lifecycle: EngineLifecycle, events: EventBook, window_s: float) -> None:
        self._lifecycle = lifecycle
        self._events = events
        self._window_s = window_s
        self._kept_s = _HISTORY_RATIO * window_s + 5 * _SAMPLE_S
        self._history = QualityHistory(self._kept_s)
        self._open: list[_Change] = []
        self._past: deque[_Change] = deque(maxlen=64)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._window_s > 0:
            self._task = asyncio.create_task(self._follow())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def note(self, before: Mapping[str, Any], after: Mapping[str, Any], who: str | None) -> None:
        """The engine works with `after` from now on; nothing where that is what it worked with."""
        values = {key: (before.get(key), value) for key, value in after.items() if before.get(key) != value}
        engine = self._lifecycle.engine
        if values and engine is not None and engine.telemetry is not None and self._task is not None:
            change = _Change(time.monotonic(), values, who, engine.telemetry.pid)
            self._open.append(change)
            self._past.append(change)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE_S)
            engine = self._lifecycle.engine
            now_s = time.monotonic()
            if engine is not None and engine.telemetry is not None and engine.schedulers.is_complete:
                if engine.telemetry.pid != self._history.pid:
                    self._history = QualityHistory(self._kept_s, engine.telemetry.pid)
                self._history.take(engine.telemetry, now_s)
            due = [change for change in self._open if now_s - change.stamp_s >= self._window_s]
            self._open = [change for change in self._open if change not in due]
            for change in due:
                self._tell(change)

    def _tell(self, change: _Change) -> None:
        """Nothing where another engine serves by now: there is no after."""
        if change.pid != self._history.pid:
            return
        others = [other.stamp_s for other in self._past if other is not change]
        earlier_s = max((stamp for stamp in others if stamp < change.stamp_s), default=0.0)
        later_count = sum(change.stamp_s <= stamp <= change.stamp_s + self._window_s for stamp in others)
        since_s = max(change.stamp_s - self._window_s, earlier_s)
        terms: dict[str, Term] = {
            "changed": ", ".join(f"{key}: {_text(old)} -> {_text(new)}" for key, (old, new) in change.values.items()),
            "other_change_count": later_count,
        }
        for word, figures in (
            ("before", self._history.figures(since_s, change.stamp_s)),
            ("after", self._history.figures(change.stamp_s, change.stamp_s + self._window_s)),
        ):
            terms |= {f"{word}_{key}": value for key, value in figures.items()}
        self._events.note(EventKind.EFFECT, who=change.who, terms=terms)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _quantile(ordered_s: list[float], quantile: float) -> float | None:
    """The nearest rank."""
    if not ordered_s:
        return None
    return round(ordered_s[min(len(ordered_s) - 1, int(quantile * len(ordered_s)))], 4)
