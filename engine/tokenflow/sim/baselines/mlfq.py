"""FastServe (arXiv 2305.05920): a skip-join multi-level feedback queue, preemptive at every step.

Level k has a quantum of 10 ms x 2^k. A request joins at the first level whose quantum holds its prefill, goes down a
level when it has used up its quantum, and returns to the top when it has not been served for 3 s, which is looked into
once in 1,000 steps. The highest levels run, first in first out within one; KV of those who do not run stays on the
device while there is room, and is swapped out in time for others (the lowest level first); new prompts wait while less
than a tenth of the host's memory is free. Nobody's reading rate is asked.

Simplified: asked at quantum ends, promotions and events instead of at each step, and steps are counted from the time
and the engine's present step; swapping out is decided with the exchange, not ahead of it; a job that comes back takes
a step of prefill under SGLang's rules, where FastServe's own engine lets it decode at once (a run with that takes too
long here); what a prefill takes is the recent prefill time per token, not a table.
"""

import math
from dataclasses import dataclass

import numpy as np

from tokenflow.policy.costs import prefill_s
from tokenflow.policy.plan import Plan
from tokenflow.policy.view import PREEMPTED, RUNNING, WAITING, View
from tokenflow.sim.baselines.ranking import room_check_s, serve_ranked
from tokenflow.sim.scheduler import Look, StepRules, StepStyle

QUANTUM_S = 0.010  # of the highest level
LEVELS = 16
PROMOTION_S = 3.0
PROMOTION_STEPS = 1000
LEAST_HOST_RATIO = 0.1
CHUNK_TOKENS = 8192


@dataclass(slots=True)
class _Job:
    """Where a request stands in the queues. `place` orders a level's queue."""

    level: int
    place: int
    used_s: float = 0.0
    idle_s: float = 0.0
    is_running: bool = False


class Mlfq:
    """Keeps a level and a used quantum for each live request."""

    name = "mlfq"

    def __init__(self, chunk_tokens: int = CHUNK_TOKENS) -> None:
        self.rules = StepRules(style=StepStyle.SEPARATE, chunk_tokens=chunk_tokens, uses_host=True)
        self._jobs: dict[str, _Job] = {}
        self._next_place = 0
        self._now_s: float | None = None
        self._steps = 0.0  # since promotions were looked into

    def decide(self, look: Look) -> Plan:
        """Accounts for the time since the decision before, then runs the highest levels."""
        view = look.view
        self._account(view)
        jobs = [self._jobs[rid] for rid in view.rids]
        rank = np.lexsort((np.array([job.place for job in jobs]), np.array([job.level for job in jobs])))
        if self._is_host_scarce(view):
            rank = rank[view.state[rank] != WAITING]
        plan = serve_ranked(view, rank)
        started = {decision.rid for decision in plan.starts}
        paused = {decision.rid for decision in plan.pauses}
        for row, rid in enumerate(view.rids):
            holds_slot = view.state[row] > PREEMPTED
            self._jobs[rid].is_running = (holds_slot and rid not in paused) or rid in started
        return plan

    def ask_again_s(self, look: Look, plan: Plan) -> float:
        """When the first quantum ends or the first promotion is due, while somebody has no place."""
        running = [job for job in self._jobs.values() if job.is_running]
        idle = [job for job in self._jobs.values() if not job.is_running]
        if not idle:
            return room_check_s(look)
        until_s = [_quantum_s(job.level) - job.used_s for job in running]
        until_s.append((PROMOTION_STEPS - self._steps) * look.view.engine.step_s)
        return min(look.now_s + max(min(until_s), 1e-4), room_check_s(look))

    def _is_host_scarce(self, view: View) -> bool:
        """FastServe takes no new prompt while under a tenth of the host is free; but one, if nobody is there."""
        engine = view.engine
        is_low = engine.host_free_tokens < LEAST_HOST_RATIO * engine.host_total_tokens
        return is_low and bool((view.state > WAITING).any())

    def _account(self, view: View) -> None:
        now_s = view.engine.now_s
        elapsed_s = 0.0 if self._now_s is None else now_s - self._now_s
        self._now_s = now_s
        self._steps += elapsed_s / max(view.engine.step_s, 1e-4)
        may_promote = self._steps >= PROMOTION_STEPS - 1e-6
        if may_promote:
            self._steps = 0.0
        kept: dict[str, _Job] = {}
        prompts_s = prefill_s(view, np.arange(len(view)))
        for row, rid in enumerate(view.rids):
            job = self._jobs.get(rid)
            if job is None:
                job = _Job(_first_level(float(prompts_s[row])), self._place())
            elif job.is_running:
                job.used_s += elapsed_s
                job.idle_s = 0.0
                if job.used_s >= _quantum_s(job.level) - 1e-9 and view.state[row] == RUNNING:
                    job.level, job.place, job.used_s = min(job.level + 1, LEVELS - 1), self._place(), 0.0
            else:
                job.idle_s += elapsed_s
                if may_promote and job.idle_s >= PROMOTION_S and job.level > 0:
                    job.level, job.place, job.used_s, job.idle_s = 0, self._place(), 0.0, 0.0
            kept[rid] = job
        self._jobs = kept

    def _place(self) -> int:
        self._next_place += 1
        return self._next_place


def _quantum_s(level: int) -> float:
    return QUANTUM_S * 2.0**level


def _first_level(prefill_time_s: float) -> int:
    """Skip-join: the first level whose quantum holds the whole prefill."""
    return min(max(math.ceil(math.log2(max(prefill_time_s / QUANTUM_S, 1.0))), 0), LEVELS - 1)
