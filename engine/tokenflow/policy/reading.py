"""How fast a reader reads, measured from its acks."""

from collections import deque
from dataclasses import dataclass

WINDOW_S = 10.0  # of reading; what is longer ago does not count: a reader that slows down is believed by and by
LEAST_SPACING_S = 0.5  # acks that come closer together (bunched by a network) are taken as one
LEAST_READING_S = 2.0  # of observed reading before the measurement takes the place of what was claimed
PAUSE_S = 5.0  # a reader that stands still for so long has paused, and is no slower for it
SKIM_RATIO = 4.0  # a single jump that much faster than steady reading around it is skimming


@dataclass(slots=True)
class _Interval:
    """Between two acks. `is_limited`: there was nothing to read for a part of it, so the reader may be faster."""

    elapsed_s: float
    tokens: int
    is_limited: bool

    @property
    def tok_s(self) -> float:
        return self.tokens / self.elapsed_s


class ReadingRate:
    """Estimates one reader's rate; pure: its caller brings the times, seconds of one monotonic clock.

    The estimate is the mean of the last `WINDOW_S`, or the rate that two intervals in a row have both surpassed, if
    that is higher: a reader who turns out faster must not run dry, one who slows down costs only some room. Pauses,
    waits for the engine and single jumps (skimming) are left out of the mean. It never says more than the progress
    that was acked, which its caller has bounded by what was delivered.
    """

    __slots__ = ("_intervals", "_last_s", "_last_tokens", "_was_dry", "_was_gap", "claimed_tok_s", "tok_s")

    def __init__(self, claimed_tok_s: float | None) -> None:
        self.claimed_tok_s = claimed_tok_s
        self.tok_s: float | None = None  # None: nothing has been measured yet
        self._intervals: deque[_Interval] = deque()
        self._last_s: float | None = None
        self._last_tokens = 0
        self._was_dry = False
        self._was_gap = False

    def claim(self, rate_tok_s: float | None) -> None:
        """The reader says how fast it reads from now on: what was measured before no longer counts."""
        self.claimed_tok_s = rate_tok_s
        self.tok_s = None
        self._intervals.clear()
        self._last_s = None

    def observe(self, now_s: float, consumed_tokens: int, is_dry: bool) -> bool:
        """An ack: `consumed_tokens` have been read; `is_dry`: they are all that was delivered.

        True where the estimate may have changed. What goes back, in time or tokens, is passed over.
        """
        last_s = self._last_s
        if last_s is not None:
            if consumed_tokens < self._last_tokens or not now_s - last_s >= LEAST_SPACING_S:
                return False
            self._take(now_s - last_s, consumed_tokens - self._last_tokens, is_dry or self._was_dry)
        self._last_s, self._last_tokens, self._was_dry = now_s, consumed_tokens, is_dry
        self._measure()
        return True

    def _take(self, elapsed_s: float, tokens: int, is_limited: bool) -> None:
        is_gap = elapsed_s >= PAUSE_S and tokens > 0 and SKIM_RATIO * tokens < elapsed_s * (self.tok_s or 0.0)
        was_gap, self._was_gap = self._was_gap, is_gap
        if is_gap and not was_gap:
            return  # a pause without acks; if it happens again, this is how the client reads
        intervals = self._intervals
        last = intervals[-1] if intervals else None
        if last is not None and last.tokens == 0 == tokens:
            last.elapsed_s += elapsed_s
            last.is_limited |= is_limited
            return
        if last is not None and last.tokens == 0 and last.elapsed_s >= PAUSE_S:
            intervals.pop()
        intervals.append(_Interval(elapsed_s, tokens, is_limited))
        kept_s = sum(interval.elapsed_s for interval in intervals)
        while len(intervals) > 2 and kept_s - intervals[0].elapsed_s >= WINDOW_S:
            kept_s -= intervals.popleft().elapsed_s

    def _measure(self) -> None:
        intervals = list(self._intervals)
        floor_tok_s = _surpassed(intervals[-2:]) if len(intervals) >= 2 else 0.0
        if intervals and intervals[-1].tokens == 0:
            intervals.pop()  # whether this is a pause shows once the reader goes on
        free = _without_skim([interval for interval in intervals if not interval.is_limited])
        free_s, free_tokens = sum(i.elapsed_s for i in free), sum(i.tokens for i in free)
        if free_s >= LEAST_READING_S and free_tokens > 0:
            self.tok_s = max(free_tokens / free_s, floor_tok_s)
        elif floor_tok_s > (self.tok_s or self.claimed_tok_s or 0.0):
            self.tok_s = floor_tok_s


def _surpassed(last: list[_Interval]) -> float:
    """What all of these show at least. A whole token less: which one is being read is not known."""
    return max(0.0, min((interval.tokens - 1) / interval.elapsed_s for interval in last))


def _without_skim(intervals: list[_Interval]) -> list[_Interval]:
    """Leaves one outlier out where the others are steady reading; lumps that are all there is stay."""
    if len(intervals) < 4:
        return intervals
    fastest = max(range(len(intervals)), key=lambda index: intervals[index].tok_s)
    others = intervals[:fastest] + intervals[fastest + 1 :]
    other_tok_s = sum(i.tokens for i in others) / sum(i.elapsed_s for i in others)
    moving_count = sum(interval.tokens > 0 for interval in others)
    is_steady = 2 * moving_count >= len(others)
    return others if is_steady and intervals[fastest].tok_s > SKIM_RATIO * other_tok_s else intervals
