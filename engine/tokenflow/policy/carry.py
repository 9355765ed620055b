"""What one decision hands to the next. An explicit value: `plan` takes it in the view and returns it in the plan."""

import msgspec

MAX_ELAPSED_S = 0.5  # a clock that jumps counts as this much at most: less than any timer here needs


class Carry(msgspec.Struct, frozen=True, gc=False):
    """State between decisions. The default is the state before the first one.

    Timers are elapsed sums, not stamps, so that a clock that jumps can neither fire nor block them.
    """

    now_s: float | None = None  # of the decision before
    is_overloaded: bool = False
    demand_ratio: float | None = None  # moving average of demand over capacity
    beyond_s: float = 0.0  # for how long the average has asked for the other state
    switch_count: int = 0  # overload begun or ended
    swap_credit: float | None = None  # pauses that `max_swaps_per_s` allows at once; None before the first decision
    slice_s: float = float("inf")  # time since `paper` last rescheduled

    def elapsed_s(self, now_s: float) -> float:
        """Seconds since the decision before: never negative, never more than MAX_ELAPSED_S, 0 for the first."""
        if self.now_s is None:
            return 0.0
        elapsed_s = now_s - self.now_s
        return min(elapsed_s, MAX_ELAPSED_S) if elapsed_s > 0.0 else 0.0
