"""Tail quantiles of what was measured lately, with a prior until there is enough of it."""

import numpy as np

_FEW_SAMPLES = 20  # below this the prior still has a say


class SlidingTail:
    """The newest samples of one quantity: at most `capacity`, none older than `window_s`.

    `prior` is the value that the quantile is taken to have before anything was measured (a profile's, or a careful
    guess). Samples that are not finite or are negative are dropped: they are faults of a clock, not measurements.
    """

    def __init__(self, *, capacity: int = 512, window_s: float = 300.0, prior: float | None = None) -> None:
        assert capacity > 0
        assert window_s > 0
        self._values = np.zeros(capacity)
        self._stamps_s = np.full(capacity, -np.inf)
        self._next = 0
        self._newest_s = -np.inf
        self._window_s = window_s
        self._prior = prior
        self._cached: dict[float, float | None] = {}
        self.total_count = 0

    def observe(self, now_s: float, value: float) -> None:
        """Takes in one sample, made at `now_s` (a clock that jumps back does not age what is there)."""
        if not (np.isfinite(value) and np.isfinite(now_s)) or value < 0:
            return
        self._newest_s = max(self._newest_s, now_s)
        self._values[self._next] = value
        self._stamps_s[self._next] = self._newest_s
        self._next = (self._next + 1) % len(self._values)
        self.total_count += 1
        self._cached.clear()

    def quantile(self, q: float) -> float | None:
        """The q-quantile (linear between samples). None without a sample or a prior.

        While samples are few the prior is mixed in with the weight of the missing ones, and the answer is never
        on the hopeful side of what was seen: not below it for a high quantile, not above it for a low one.
        """
        if q not in self._cached:
            self._cached[q] = self._compute(q)
        return self._cached[q]

    @property
    def count(self) -> int:
        """Samples inside the window."""
        return int(np.count_nonzero(self._stamps_s >= self._newest_s - self._window_s)) if self.total_count else 0

    def mean(self) -> float | None:
        """Mean of the window; the prior without samples."""
        held = self._held()
        return float(held.mean()) if held.size else self._prior

    def _held(self) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        if not self.total_count:
            return np.empty(0)
        return self._values[self._stamps_s >= self._newest_s - self._window_s]

    def _compute(self, q: float) -> float | None:
        held = self._held()
        if not held.size:
            return self._prior
        seen = _quantile(held, q)
        if self._prior is None or held.size >= _FEW_SAMPLES:
            return seen
        share = held.size / _FEW_SAMPLES
        mixed = share * seen + (1.0 - share) * self._prior
        return max(mixed, seen) if q >= 0.5 else min(mixed, seen)


def _quantile(values: "np.ndarray[tuple[int], np.dtype[np.float64]]", q: float) -> float:
    """As `np.quantile` (linear), which takes ten times as long for a few hundred values."""
    place = q * (values.size - 1)
    below = int(place)
    above = min(below + 1, values.size - 1)
    low, high = np.partition(values, (below, above))[[below, above]].tolist()
    share = place - below
    step = high - low
    return float(low + step * share if share < 0.5 else high - step * (1.0 - share))
