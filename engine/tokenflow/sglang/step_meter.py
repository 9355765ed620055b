"""Times of steps, taken from the stamps at which SGLang launches its batches.

The time of a batch is the distance from its launch to the next batch's: on a GPU with overlap that is the step, on a
CPU, where the launch itself computes, it is too. A batch after which the loop was idle says nothing.
"""

from collections.abc import Sequence
from typing import Any

from tokenflow.counters import Counters, Phase
from tokenflow.policy.step_meter import MeasuredStep, StepMeter


class LaunchStamps:
    """Tells `meter` what each batch was and how long it took, and counts the step."""

    def __init__(self, meter: StepMeter, counters: Counters | None = None) -> None:
        self._meter = meter
        self._counters = counters or Counters()
        self._previous: tuple[float, MeasuredStep] | None = None

    def take(self, batch: Any, now_s: float) -> None:
        """A batch's result has been processed."""
        launch_s = batch.launch_ts
        if launch_s is None:
            return
        previous, self._previous = self._previous, (launch_s, _describe(batch))
        if previous is None or batch.after_idle_gap:
            return
        step_s = launch_s - previous[0]
        if 0.0 < step_s < 60.0:
            self._meter.take(previous[1], step_s, now_s)
            self._counters.observe_transition(Phase.SCHEDULE, step_s)


def _describe(batch: Any) -> MeasuredStep:
    decoding = batch.decoding_reqs or ()  # the last ones, of a mixed step: a token each
    count = len(batch.reqs) - len(decoding)
    if not (batch.forward_mode.is_extend() and count):
        return MeasuredStep(False, len(batch.reqs), _context_tokens(batch.reqs))
    lengths = (batch.extend_lens or ())[:count]
    prompt_tokens = sum(length for req, length in zip(batch.reqs, lengths, strict=False) if req.retraction_count == 0)
    new_tokens = max(int(batch.extend_num_tokens or 0) - len(decoding), 0)
    prompt_ratio = min(prompt_tokens / max(new_tokens, 1), 1.0)
    return MeasuredStep(True, count, 0, new_tokens, prompt_ratio, len(decoding), _context_tokens(decoding))


def _context_tokens(reqs: Sequence[Any]) -> int:
    return sum(len(req.origin_input_ids) + len(req.output_ids) for req in reqs)
