"""Times of decode and prefill steps, taken from the stamps at which SGLang launches its batches.

The time of a batch is the distance from its launch to the next batch's: on a GPU with overlap that is the step, on a
CPU, where the launch itself computes, it is too. A batch after which the loop was idle says nothing.
"""

from dataclasses import dataclass
from typing import Any

from tokenflow.counters import Counters, Phase
from tokenflow.policy.capacity import StepTimeFit, capacity_tok_s
from tokenflow.policy.estimator import CostEstimator

_SHARE_WINDOW_S = 60.0  # a burst of prompts is not the share that they take in the long run


@dataclass(slots=True)
class _Launched:
    launch_s: float
    is_prefill: bool
    batch_size: int
    context_tokens: int
    new_tokens: int
    prompt_ratio: float  # share of `new_tokens` that are prompts' and not of streams that come back


class StepMeter:
    """Feeds the step-time fit and the prefill cost; keeps the share of time that goes into prompts.

    A step in which streams come back with their KV makes a token for each of them, as a decode step does: it takes
    nothing from capacity, and what swaps cost beyond that is the policy's own doing.
    """

    def __init__(self, costs: CostEstimator, fit: StepTimeFit, counters: Counters | None = None) -> None:
        self._counters = counters or Counters()
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
        self._prefill_share += weight * (previous.prompt_ratio - self._prefill_share)
        if previous.is_prefill:
            self._costs.observe_prefill(previous.new_tokens, step_s, previous.batch_size)
        else:
            self._fit.observe(previous.batch_size, previous.context_tokens, step_s)
        self._costs.observe_schedule(now_s, step_s)
        self._counters.observe_transition(Phase.SCHEDULE, step_s)

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
    if not is_prefill:
        context_tokens = sum(len(req.origin_input_ids) + len(req.output_ids) for req in batch.reqs)
        return _Launched(launch_s, False, len(batch.reqs), context_tokens, 0, 0.0)
    new_tokens = int(batch.extend_num_tokens or 0)
    lengths = zip(batch.reqs, batch.extend_lens or (), strict=False)
    prompt_tokens = sum(length for req, length in lengths if req.retraction_count == 0)
    return _Launched(launch_s, True, len(batch.reqs), 0, new_tokens, min(prompt_tokens / max(new_tokens, 1), 1.0))
