"""What the engine has counted since its start, for `/metrics`: sums and histograms, by class, direction or phase.

They live in the scheduler of rank 0 and travel with every telemetry message, so that they go on counting over a
restart of the daemon. No request id is in them.
"""

from bisect import bisect_left
from enum import StrEnum

import msgspec

from tokenflow.policy.states import Reason

TTFT_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0)
RUNWAY_BOUNDS_S = (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)
TRANSFER_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
TRANSITION_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
DECISION_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)


class Direction(StrEnum):
    """Of a copy between the device's and the host's KV pool."""

    D2H = "d2h"
    H2D = "h2d"


class Phase(StrEnum):
    """A part of the way out of the batch and back into it."""

    EVICT = "evict"  # one copy of KV to the host
    LOAD = "load"  # one copy of KV to the device
    SCHEDULE = "schedule"  # one step of the engine: what a decision waits for
    PAUSED = "paused"  # from a stream's pause to its return


class Histogram(msgspec.Struct, array_like=True):
    """Counts of observations by bucket. `counts[i]`: those up to `bounds[i]` and above the bound before it; the last
    count, one more than there are bounds, is of those above them all."""

    bounds: list[float]
    counts: list[int]
    sum: float = 0.0

    @classmethod
    def of(cls, bounds: tuple[float, ...]) -> "Histogram":
        return cls(list(bounds), [0] * (len(bounds) + 1))

    def observe(self, value: float) -> None:
        """What is not a number is dropped: a fault of a clock, not a measurement."""
        if value == value:
            self.counts[bisect_left(self.bounds, value)] += 1
            self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """(bound, observations up to it), the last with an infinite bound: as Prometheus wants it."""
        total, rows = 0, []
        for bound, count in zip([*self.bounds, float("inf")], self.counts, strict=True):
            total += count
            rows.append((bound, total))
        return rows


class Counters(msgspec.Struct, kw_only=True):
    """All since the engine's start. Keys are names of classes unless said otherwise; plain strings, so that a reason
    or a phase that one side does not know yet costs nothing."""

    generated_tokens: dict[str, int] = {}
    effective_tokens: dict[str, float] = {}  # delivered ones, each by its weight (docs/metrics.md)
    zombie_tokens: dict[str, int] = {}
    stall_s: dict[str, float] = {}
    preemptions: dict[str, dict[str, int]] = {}  # by class, then by `Reason`
    ttft_s: dict[str, Histogram] = {}
    runway_s: dict[str, Histogram] = {}  # of every stream with a reader, once a second
    transfer_s: dict[str, Histogram] = {}  # by `Direction`
    transition_s: dict[str, Histogram] = {}  # by `Phase`
    decision_s: Histogram = msgspec.field(default_factory=lambda: Histogram.of(DECISION_BOUNDS_S))
    plugin_spent_s: float = 0.0  # in our hooks, on the scheduler's thread

    def add_tokens(self, class_name: str, tokens: int) -> None:
        self.generated_tokens[class_name] = self.generated_tokens.get(class_name, 0) + tokens

    def add_effective(self, class_name: str, tokens: float) -> None:
        self.effective_tokens[class_name] = self.effective_tokens.get(class_name, 0.0) + tokens

    def add_zombies(self, class_name: str, tokens: int) -> None:
        self.zombie_tokens[class_name] = self.zombie_tokens.get(class_name, 0) + tokens

    def add_stall(self, class_name: str, stall_s: float) -> None:
        self.stall_s[class_name] = self.stall_s.get(class_name, 0.0) + stall_s

    def add_preemption(self, class_name: str, reason: Reason) -> None:
        by_reason = self.preemptions.setdefault(class_name, {})
        by_reason[reason] = by_reason.get(reason, 0) + 1

    def observe_ttft(self, class_name: str, ttft_s: float) -> None:
        _of(self.ttft_s, class_name, TTFT_BOUNDS_S).observe(ttft_s)

    def observe_runway(self, class_name: str, runway_s: float) -> None:
        _of(self.runway_s, class_name, RUNWAY_BOUNDS_S).observe(runway_s)

    def observe_transfer(self, direction: Direction, seconds: float) -> None:
        _of(self.transfer_s, direction, TRANSFER_BOUNDS_S).observe(seconds)
        self.observe_transition(Phase.EVICT if direction is Direction.D2H else Phase.LOAD, seconds)

    def observe_transition(self, phase: Phase, seconds: float) -> None:
        _of(self.transition_s, phase, TRANSITION_BOUNDS_S).observe(seconds)


def _of(histograms: dict[str, Histogram], key: str, bounds: tuple[float, ...]) -> Histogram:
    found = histograms.get(key)
    if found is None:
        found = histograms[key] = Histogram.of(bounds)
    return found
