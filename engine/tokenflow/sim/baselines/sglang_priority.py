"""SGLang 0.5.23 with --enable-priority-scheduling: static priorities, preempt and recompute.

Source: sglang/srt/managers/schedule_policy.py, `preempt_to_schedule`. It is asked only when no slot is free, never for
memory alone; victims are those whose priority is lower by more than a threshold of 10, the lowest and latest first;
their KV is thrown away. Whoever comes back queues behind its equals. SGLang takes priorities from its clients; here
they follow the reading rate, so that fast readers go first, 20 points for each token per second.
"""

import math

import numpy as np

from tokenflow.policy.plan import Action, Cause, Plan
from tokenflow.policy.view import View
from tokenflow.sim.baselines.draft import Draft
from tokenflow.sim.baselines.fcfs import SGLANG_RULES
from tokenflow.sim.baselines.sglang_reserve import MOST_NEW_TOKENS, SglangReserve
from tokenflow.sim.scheduler import Look, StepRules

THRESHOLD = 10.0  # --priority-scheduling-preemption-threshold
POINTS_PER_TOK_S = 20.0


class SglangPriority:
    """Requests that nobody reads along with have priority 0."""

    name = "sglang-priority"

    def __init__(self, rules: StepRules = SGLANG_RULES) -> None:
        self.rules = rules
        self._reserve = SglangReserve()

    def decide(self, look: Look) -> Plan:
        """Walks the queue in order of priority, then of queueing; stops at the first that cannot be served."""
        view, draft = look.view, Draft(look.view)
        self._reserve.retract(draft, look.made_tokens)
        if draft.pauses:
            return draft.plan()
        priority = _priorities(view)
        rows = draft.seekers
        for row in rows[np.lexsort((view.since_s[rows], -priority[rows]))].tolist():
            if draft.slots <= 0 and not self._preempt(draft, row, priority):
                break
            own = min(view.remaining_tokens.item(row), MOST_NEW_TOKENS)
            is_alone = not draft.holding.size and not draft.starts
            if not draft.fits(row, 0.0 if is_alone else self._kept_tokens(draft) + own):
                draft.block(row)
                break
            draft.start(row, Cause.FREE_PLACE)
        return draft.plan()

    def ask_again_s(self, look: Look, plan: Plan) -> float:
        """Priorities are static: nothing changes by itself."""
        return math.inf

    def _kept_tokens(self, draft: Draft) -> float:
        """For those who run, a share; for those started in this decision, all they may make."""
        remaining = draft.view.remaining_tokens
        fresh = sum(min(remaining.item(decision.row), MOST_NEW_TOKENS) for decision in draft.starts)
        return self._reserve.running_tokens(draft) + fresh

    def _preempt(self, draft: Draft, row: int, priority: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> bool:
        """Makes room for `row` if enough that rank below it are there. Victims lose their KV."""
        view = draft.view
        own = min(view.remaining_tokens.item(row), MOST_NEW_TOKENS)
        lacking = draft.need_tokens(row) + own + self._kept_tokens(draft) - draft.free_tokens
        rows = draft.running
        queued_s = np.where(view.is_first_run[rows], view.arrival_s[rows], view.since_s[rows])
        victims: list[int] = []
        for victim in rows[np.lexsort((-queued_s, priority[rows]))].tolist():
            if priority[row] - priority[victim] <= THRESHOLD:
                break
            victims.append(victim)
            # As SGLang counts: what was reserved for the victim, not the KV that it holds.
            lacking -= min(view.remaining_tokens.item(victim), MOST_NEW_TOKENS) * self._reserve.ratio
            if lacking <= 0.0:
                break
        if not victims or lacking > 0.0:
            return False
        for victim in victims:
            draft.pause(victim, Action.PAUSE_DROP)
        return True


def _priorities(view: View) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.nan_to_num(view.rate_tok_s, nan=0.0) * POINTS_PER_TOK_S
