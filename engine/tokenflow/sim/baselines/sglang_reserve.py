"""SGLang 0.5.23's conservative admission: how much of what running requests may yet make is kept free for them.

Source: sglang/srt/managers/schedule_policy.py (PrefillAdder), schedule_batch.py (retract_decode) and
scheduler_components/new_token_ratio_tracker.py. Simplified: decode steps are counted from the time between decisions
and the engine's present step, not one by one.
"""

import numpy as np

from tokenflow.policy.plan import Action, Cause
from tokenflow.sim.baselines.draft import Draft

MOST_NEW_TOKENS = 4096  # SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION
FIRST_RATIO = 0.7  # SGLANG_INIT_NEW_TOKEN_RATIO at schedule_conservativeness 1
LEAST_RATIO = FIRST_RATIO * 0.14  # SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR
DECAY_STEPS = 600  # SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS
RETRACT_STEPS = 20  # SGLANG_RETRACT_DECODE_STEPS: counted as made when the ratio is estimated anew


class SglangReserve:
    """Remembers the share of the tokens to come that is kept free; it shrinks while nobody has to be retracted."""

    def __init__(self) -> None:
        self.ratio = FIRST_RATIO
        self._now_s: float | None = None

    def retract(self, draft: Draft, made_tokens: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
        """Where the next step does not fit: whoever has made least goes (the longest prompt first), and its KV is
        dropped, until those who are left can take the step. One always stays."""
        self._decay(draft)
        if draft.growth_tokens(1) <= draft.free_tokens:
            return
        view, rows = draft.view, draft.running
        prompt = view.context_tokens[rows] - made_tokens[rows]
        order = rows[np.lexsort((-prompt, made_tokens[rows]))].tolist()
        while len(order) > 1 and draft.growth_tokens(1) > draft.free_tokens:
            draft.pause(order.pop(0), Action.PAUSE_DROP, Cause.KV_FULL)
        left = draft.running
        to_come = float((made_tokens[left] + view.remaining_tokens[left]).sum())
        made = float(made_tokens[left].sum()) + RETRACT_STEPS * left.size
        self.ratio = min(made / (to_come + 1.0), 1.0)

    def running_tokens(self, draft: Draft) -> float:
        """What is kept for those who hold a slot."""
        remaining = np.minimum(draft.view.remaining_tokens[draft.holding], MOST_NEW_TOKENS)
        return float(remaining.sum()) * self.ratio

    def start_in_order(self, draft: Draft, rows: "np.ndarray[tuple[int], np.dtype[np.intp]]") -> None:
        """Starts rows until the first that does not fit, with all of its own output reserved while it is chosen."""
        kept = self.running_tokens(draft)
        for row in rows.tolist():
            own = min(draft.view.remaining_tokens.item(row), MOST_NEW_TOKENS)
            # Alone in the engine it is let in as soon as its prompt fits: nobody else can run out of memory.
            if not draft.fits(row, kept + own if draft.holding.size or draft.starts else 0.0):
                draft.block(row)
                return
            draft.start(row)
            kept += own

    def _decay(self, draft: Draft) -> None:
        now_s, step_s = draft.view.engine.now_s, max(draft.view.engine.step_s, 1e-4)
        if self._now_s is not None and draft.running.size:
            steps = max(now_s - self._now_s, 0.0) / step_s
            self.ratio = max(self.ratio - steps * (FIRST_RATIO - LEAST_RATIO) / DECAY_STEPS, LEAST_RATIO)
        self._now_s = now_s
