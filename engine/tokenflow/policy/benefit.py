"""The net-benefit test: what a swap gains and what it costs everybody, in weighted seconds (design.md section 5).

The idea of pricing each pair and stopping where the net falls to nothing is Andes' refiner (arXiv 2404.16283 v2).
"""

from bisect import bisect_left
from dataclasses import dataclass

from tokenflow.policy.plan import Cause
from tokenflow.policy.tunables import Tunables

UNKNOWN_WAIT_S = 5.0  # how long a place is taken to be awaited where releases were not seen yet


@dataclass(frozen=True, slots=True)
class Newcomer:
    """Who would get the place: its slack and lead, and by which rule it asks."""

    cause: Cause
    slack_s: float
    lead_s: float
    wait_s: float  # what it would wait for a place if nobody made room


@dataclass(frozen=True, slots=True)
class Victim:
    """Who would leave. `is_beyond`: so far ahead of its reader that what it makes now counts for nothing."""

    runway_s: float
    evict_s: float
    load_s: float
    is_beyond: bool


class StallCost:
    """Seconds of stall that a pause of the whole batch would cause, over the running readers' runways."""

    def __init__(self, runways_s: list[float]) -> None:
        self._sorted = sorted(runways_s)
        self._sums = [0.0]
        for runway_s in self._sorted:
            self._sums.append(self._sums[-1] + runway_s)

    def stall_s(self, pause_s: float) -> float:
        """Sum over the batch of (pause − runway)+."""
        count = bisect_left(self._sorted, pause_s)
        return count * pause_s - self._sums[count]


def swap_benefit_s(
    newcomer: Newcomer,
    victims: list[Victim],
    tunables: Tunables,
    *,
    hold_s: float,
    schedule_s: float,
    batch_stall_s: float,
) -> float:
    """Weighted seconds gained by the swap, net. The gain counts from now, not only once a target is missed."""
    gain = _gain_s(newcomer, tunables)
    cost = tunables.weight_stall * batch_stall_s
    lost_s = newcomer.lead_s if newcomer.cause is not Cause.FIRST_TOKEN else 0.0  # a first prefill is due anyway
    for victim in victims:
        back_s = hold_s + victim.evict_s + victim.load_s + schedule_s
        cost += tunables.weight_stall * max(back_s - victim.runway_s, 0.0)
        if not victim.is_beyond:
            lost_s += victim.load_s
    return gain - cost - tunables.weight_throughput * lost_s


def _gain_s(newcomer: Newcomer, tunables: Tunables) -> float:
    if newcomer.cause is Cause.FIRST_TOKEN:
        return tunables.weight_ttft * newcomer.wait_s
    if newcomer.cause is Cause.SHARE:  # a run's worth of tokens that count, instead of ones that do not
        return tunables.weight_throughput * tunables.quantum_s
    spare_s = newcomer.lead_s - max(newcomer.slack_s, 0.0)
    avoided_s = max(newcomer.wait_s + spare_s, 0.0) - max(spare_s, 0.0)
    return tunables.weight_stall * avoided_s
