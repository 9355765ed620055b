"""Times of decode and prefill steps, taken from the stamps at which SGLang launches its batches.

The time of a batch is the distance from its launch to the next batch's: on a GPU with overlap that is the step, on a
CPU, where the launch itself computes, it is too. A batch after which the loop was idle says nothing.
"""

from dataclasses import dataclass
from typing import Any

from tokenflow.policy.capacity import StepTimeFit, capacity_tok_s
from tokenflow.policy.estimator import CostEstimator

_SHARE_WINDOW_S = 20.0


@dataclass(slots=True)
class _Launched:
    launch_s: float
    is_prefill: bool
    batch_size: int
    context_tokens: int
    new_tokens: int


class StepMeter:
    """Feeds the step-time fit and the prefill cost; keeps the share of time that goes into prefill."""

    def __init__(self, costs: CostEstimator, fit: StepTimeFit) -> None:
        self._costs = costs
        self._fit = fit
        self._previous: _Launched | None = None
        self._prefill_share = 0.0

    def take(self, batch: Any, now_s: float) -> None:
        """A batch's result has been processed."""
        launch_s = batch.launch_ts
        if launch_s is None:
            return
        previous, self._previous = self._previous, _describe(batch, launch_s)
        if previous is None or batch.after_idle_gap:
            return
        step_s = launch_s - previous.launch_s
        if not 0.0 < step_s < 60.0:
            return
        weight = min(step_s / _SHARE_WINDOW_S, 1.0)
        self._prefill_share += weight * (float(previous.is_prefill) - self._prefill_share)
        if previous.is_prefill:
            self._costs.observe_prefill(now_s, previous.new_tokens, step_s)
        else:
            self._fit.observe(previous.batch_size, previous.context_tokens, step_s)
        self._costs.observe_schedule(now_s, step_s)

    def capacity_tok_s(self, slot_count: int, kv_total_tokens: int, mean_context_tokens: float) -> float | None:
        """Γ at the batch that could run; None until a few decode steps were seen."""
        if self._fit.count < 5:
            return None
        return capacity_tok_s(
            self._fit,
            slot_count=slot_count,
            kv_total_tokens=kv_total_tokens,
            mean_context_tokens=mean_context_tokens,
            prefill_ratio=self._prefill_share,
        )

    def step_s(self, batch_size: int, context_tokens: float) -> float:
        return self._fit.step_s(max(batch_size, 1), context_tokens)


def _describe(batch: Any, launch_s: float) -> _Launched:
    is_prefill = batch.forward_mode.is_extend()
    context_tokens = 0 if is_prefill else sum(len(r.origin_input_ids) + len(r.output_ids) for r in batch.reqs)
    new_tokens = int(batch.extend_num_tokens or 0) if is_prefill else 0
    return _Launched(launch_s, is_prefill, len(batch.reqs), context_tokens, new_tokens)
