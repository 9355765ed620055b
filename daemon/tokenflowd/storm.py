"""A storm of preemptions: KV memory is full, and streams are taken out for it faster than they get anywhere.

SGLang issue 26248 is the case: throughput falls by an order of magnitude, and no single stream is moved often enough to
stand out. Pure: every stamp comes with the telemetry.
"""

from collections import deque
from dataclasses import dataclass

from tokenflow.link import Telemetry
from tokenflow.policy.states import Reason

WINDOW_S = 60.0
STORM_PER_S = 0.5
"""Streams taken out because KV is full."""


@dataclass(frozen=True, slots=True)
class Storm:
    """Of the last minute, and tokens per second in it and in the minute before it (None: not known)."""

    preemption_count: int
    made_tok_s: float
    made_before_tok_s: float | None


@dataclass(frozen=True, slots=True)
class _Mark:
    at_s: float
    preemption_count: int
    made_tokens: float


class StormWatch:
    """Fed every few seconds; `now` is the storm that there is, or None."""

    def __init__(self) -> None:
        self._marks: deque[_Mark] = deque()
        self.now: Storm | None = None

    def take(self, telemetry: Telemetry, made_tokens: float) -> None:
        """`made_tokens`: all that was made until then."""
        now_s = telemetry.sent_s
        self._marks.append(_Mark(now_s, _kv_full_count(telemetry), made_tokens))
        while now_s - self._marks[0].at_s > 2 * WINDOW_S:
            self._marks.popleft()
        self.now = self._judge(now_s)

    def _judge(self, now_s: float) -> Storm | None:
        first, last = self._marks[0], self._marks[-1]
        middle = next(mark for mark in self._marks if now_s - mark.at_s <= WINDOW_S)
        count, span_s = last.preemption_count - middle.preemption_count, last.at_s - middle.at_s
        if span_s < WINDOW_S / 2 or count < STORM_PER_S * span_s:
            return None
        return Storm(count, _rate(middle, last), _rate(first, middle) if middle.at_s > first.at_s else None)


def _rate(first: _Mark, last: _Mark) -> float:
    return (last.made_tokens - first.made_tokens) / (last.at_s - first.at_s)


def _kv_full_count(telemetry: Telemetry) -> int:
    """Since the engine's start; 0 of a plugin that does not count them."""
    if telemetry.counters is None:
        return 0
    return sum(by_reason.get(Reason.PREEMPTED_KV_FULL, 0) for by_reason in telemetry.counters.preemptions.values())
