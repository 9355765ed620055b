"""The net-benefit test: what a swap gains and what it costs everybody, in weighted seconds (docs/policy.md).

The idea of pricing each pair and stopping where the net falls to nothing is Andes' refiner (arXiv 2404.16283 v2).
"""

from bisect import bisect_left

from tokenflow.policy.plan import Cause
from tokenflow.policy.tunables import Tunables

UNKNOWN_WAIT_S = 5.0  # how long a place is taken to be awaited where releases were not seen yet, and at most

_FIRST_TOKEN, _SHARE = Cause.FIRST_TOKEN, Cause.SHARE


class StallCost:
    """Seconds of stall that a pause of the whole batch would cause, over the running readers' runways."""

    def __init__(self, runways_s: list[float]) -> None:
        self._sorted = sorted(runways_s)
        self._sums = [0.0]
        total_s = 0.0
        for runway_s in self._sorted:
            total_s += runway_s
            self._sums.append(total_s)

    def stall_s(self, pause_s: float) -> float:
        """Sum over the batch of (pause − runway)+."""
        count = bisect_left(self._sorted, pause_s)
        return count * pause_s - self._sums[count]


def gain_s(cause: Cause, slack_s: float, lead_s: float, wait_s: float, tunables: Tunables) -> float:
    """Weighted seconds that a newcomer gains, who would otherwise wait `wait_s` for a place.

    Counted from now, not only once a target is missed: for a first token the whole wait, for a paused reader the
    stall that is avoided, for a swap between streams ahead of their readers a run whose tokens count.
    """
    if cause is _FIRST_TOKEN:
        return tunables.weight_ttft * wait_s
    if cause is _SHARE:
        return tunables.weight_throughput * tunables.quantum_s
    spare_s = lead_s - max(slack_s, 0.0)
    return tunables.weight_stall * (max(wait_s + spare_s, 0.0) - max(spare_s, 0.0))


def victim_cost_s(runway_s: float, back_s: float, load_s: float, tunables: Tunables) -> float:
    """Weighted seconds that a victim loses: the stall if it comes back `back_s` from now, and its return's work."""
    stalled_s = back_s - runway_s
    lost_s = tunables.weight_throughput * load_s
    return lost_s + tunables.weight_stall * stalled_s if stalled_s > 0.0 else lost_s
