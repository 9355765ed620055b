"""Turns what the engine measures into the `Costs` that decisions are made with."""

import math
from dataclasses import dataclass

from tokenflow.policy.capacity import PREFILL_SCALE, StepTimeFit
from tokenflow.policy.costs import Costs
from tokenflow.policy.distributions import SlidingTail

_RATE_WINDOW_S = 10.0  # time constant of the arrival and release averages
_PREFILL_FORGETTING = 0.98  # prefill steps are rare: the last fifty or so count
_REFRESH_S = 0.25  # quantiles are taken anew this often at most


@dataclass(slots=True)
class _EventRate:
    """Exponentially weighted events per second."""

    per_s: float = 0.0
    _stamp_s: float | None = None

    def event(self, now_s: float) -> None:
        self.per_s = self.at(now_s) + 1.0 / _RATE_WINDOW_S
        self._stamp_s = now_s if self._stamp_s is None else max(self._stamp_s, now_s)

    def at(self, now_s: float) -> float:
        if self._stamp_s is None:
            return 0.0
        return self.per_s * math.exp(-max(now_s - self._stamp_s, 0.0) / _RATE_WINDOW_S)


class CostEstimator:
    """Distributions of evict, load, schedule and prefill, and the rates of arrivals and releases.

    Transfers are given with their bytes and their service time without queueing. `prior` is the profile's; it
    decides until there are samples. Stamps are seconds on one clock.
    """

    def __init__(self, prior: Costs | None = None, *, window_s: float = 300.0) -> None:
        prior = prior or Costs()
        self._prior = prior
        self.evict_s = SlidingTail(window_s=window_s, prior=prior.evict_tail_s)
        self.load_s = SlidingTail(window_s=window_s)
        self.schedule_s = SlidingTail(window_s=window_s, prior=prior.schedule_s)
        per_step = (prior.prefill_fixed_s, prior.prefill_row_s, prior.prefill_s_per_token)
        self.prefill = StepTimeFit(per_step, scale=PREFILL_SCALE, forgetting=_PREFILL_FORGETTING, ridge=0.05)
        self._d2h = SlidingTail(window_s=window_s, prior=prior.d2h_bytes_s)
        self._h2d = SlidingTail(window_s=window_s, prior=prior.h2d_bytes_s)
        self._arrivals = _EventRate()
        self._releases = _EventRate()
        self._snapshot: tuple[float, float, Costs] | None = None

    def observe_evict(self, now_s: float, byte_count: float, service_s: float) -> None:
        """A copy to the host has finished."""
        self.evict_s.observe(now_s, service_s)
        self._observe_bandwidth(self._d2h, now_s, byte_count, service_s, self._prior.evict_fixed_s)

    def observe_load(self, now_s: float, byte_count: float, service_s: float) -> None:
        """A copy to the device has finished."""
        self.load_s.observe(now_s, service_s)
        self._observe_bandwidth(self._h2d, now_s, byte_count, service_s, self._prior.load_fixed_s)

    def observe_schedule(self, now_s: float, seconds: float) -> None:
        """From a decision to the step that carries it out: the step in progress and one prefill chunk."""
        self.schedule_s.observe(now_s, seconds)

    def observe_prefill(self, new_tokens: int, seconds: float, request_count: int = 1) -> None:
        """A step that computed `new_tokens` of prompts (or of KV that was lost) for so many requests took this long.

        A fit and not a mean of seconds per token (paper section 4.2): a stream that comes back with its KV computes
        one token in a whole step, and a mean would take that for the price of every token.
        """
        if new_tokens > 0:
            self.prefill.observe(request_count, new_tokens, seconds)

    def observe_arrival(self, now_s: float) -> None:
        self._arrivals.event(now_s)

    def observe_release(self, now_s: float) -> None:
        """A request has finished and left its place."""
        self._releases.event(now_s)

    def costs(self, now_s: float, tail_quantile: float, mean_kv_tokens: float) -> Costs:
        """The costs in force: bandwidths at the low tail, times at the high one. Cached for a quarter of a second."""
        if self._snapshot is not None:
            stamp_s, quantile, costs = self._snapshot
            if quantile == tail_quantile and 0.0 <= now_s - stamp_s < _REFRESH_S:
                return costs
        costs = self._measure(now_s, tail_quantile, mean_kv_tokens)
        self._snapshot = (now_s, tail_quantile, costs)
        return costs

    def _measure(self, now_s: float, tail_quantile: float, mean_kv_tokens: float) -> Costs:
        prior = self._prior
        fixed_s, row_s, per_token_s = self.prefill.coefficients  # expected times, not tails (paper section 4.2)
        return Costs(
            evict_fixed_s=prior.evict_fixed_s,
            load_fixed_s=prior.load_fixed_s,
            d2h_bytes_s=max(_or(self._d2h.quantile(1.0 - tail_quantile), prior.d2h_bytes_s), 1.0),
            h2d_bytes_s=max(_or(self._h2d.quantile(1.0 - tail_quantile), prior.h2d_bytes_s), 1.0),
            schedule_s=_or(self.schedule_s.quantile(tail_quantile), prior.schedule_s),
            prefill_fixed_s=fixed_s,
            prefill_row_s=row_s,
            prefill_s_per_token=per_token_s,
            arrival_rate_per_s=self._arrivals.at(now_s),
            release_rate_per_s=self._releases.at(now_s),
            evict_tail_s=_or(self.evict_s.quantile(tail_quantile), prior.evict_tail_s),
            mean_kv_tokens=mean_kv_tokens,
        )

    @staticmethod
    def _observe_bandwidth(
        tail: SlidingTail, now_s: float, byte_count: float, service_s: float, fixed_s: float
    ) -> None:
        moving_s = service_s - fixed_s
        if byte_count > 0 and moving_s > 0:
            tail.observe(now_s, byte_count / moving_s)


def _or(value: float | None, fallback: float) -> float:
    return fallback if value is None else value
