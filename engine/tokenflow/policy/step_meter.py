"""What decode and prefill steps took, as decisions need it: the step to expect, prefill costs, Γ."""

from dataclasses import dataclass

from tokenflow.policy.capacity import StepTimeFit, capacity_tok_s
from tokenflow.policy.estimator import CostEstimator

_SHARE_WINDOW_S = 60.0  # a burst of prompts is not the share that they take in the long run
_MOST_DECODING = 0.9  # of a step with prefill
FEW_STEPS = 5  # before so many decode steps were seen nothing is said of capacity


@dataclass(slots=True)
class MeasuredStep:
    """What one step computed. `prompt_ratio` is the share of `new_tokens` that are prompts' and not of streams that
    come back; both are 0 for a step that decodes only. `batch_size` are the requests that prefill, or else that decode;
    `mixed_size` and `mixed_context_tokens` are of those who decode in a step with prefill."""

    is_prefill: bool
    batch_size: int
    context_tokens: int
    new_tokens: int = 0
    prompt_ratio: float = 0.0
    mixed_size: int = 0
    mixed_context_tokens: int = 0


class StepMeter:
    """Feeds the step-time fit and the prefill cost; keeps the share of time that goes into prompts.

    A step in which streams come back with their KV makes a token for each of them, as a decode step does: it takes
    nothing from capacity, and what swaps cost beyond that is the policy's own doing. A step that decodes as well takes
    from it what it takes longer than decoding alone, and that is what its prefill costs.
    """

    def __init__(self, costs: CostEstimator, fit: StepTimeFit) -> None:
        self._costs = costs
        self._fit = fit
        self._prefill_share = 0.0

    def take(self, step: MeasuredStep, step_s: float, now_s: float) -> None:
        """A step has taken `step_s` and is over at `now_s`."""
        prefill_s = step_s - self._decoding_s(step, step_s)
        weight = min(step_s / _SHARE_WINDOW_S, 1.0)
        self._prefill_share += weight * (step.prompt_ratio * prefill_s / step_s - self._prefill_share)
        if step.is_prefill:
            self._costs.observe_prefill(step.new_tokens, prefill_s, step.batch_size)
        else:
            self._fit.observe(step.batch_size, step.context_tokens, step_s)
        self._costs.observe_schedule(now_s, step_s)

    def _decoding_s(self, step: MeasuredStep, step_s: float) -> float:
        """What of a step with prefill goes to those who decode in it; unknown, and nothing, at first."""
        if not step.mixed_size or self._fit.count < FEW_STEPS:
            return 0.0
        return min(self._fit.step_s(step.mixed_size, step.mixed_context_tokens), _MOST_DECODING * step_s)

    def capacity_tok_s(self, slot_count: int, kv_total_tokens: float, mean_context_tokens: float) -> float | None:
        """Γ at the batch that could run; None until a few decode steps were seen."""
        if self._fit.count < FEW_STEPS:
            return None
        return capacity_tok_s(
            self._fit,
            slot_count=slot_count,
            kv_total_tokens=kv_total_tokens,
            mean_context_tokens=mean_context_tokens,
            prefill_ratio=self._prefill_share,
        )

    def step_s(self, batch_size: int, context_tokens: float) -> float:
        """The decode step to expect, in seconds."""
        return self._fit.step_s(max(batch_size, 1), context_tokens)
