"""FastServe (arXiv 2305.05920): a skip-join multi-level feedback queue, preemptive at every step.

Level k has a quantum of 10 ms x 2^k. A request joins at the first level whose quantum holds its prefill, goes down a
level when it has used up its quantum, and returns to the top after waiting 3 s without being served. The highest levels
run, first in first out within one; KV of those who do not run stays on the device while there is room, and is swapped
out in time for others (the lowest level first). Nobody's reading rate is asked.

Simplified: asked at quantum ends, promotions and events instead of at each step; swapping out is decided with the
exchange, not ahead of it; what a prefill takes is the recent prefill time per token, not a table.
"""

import math
from dataclasses import dataclass

import numpy as np

from tokenflow.policy.costs import prefill_s
from tokenflow.policy.plan import Plan
from tokenflow.policy.view import PREEMPTED, RUNNING, View
from tokenflow.sim.baselines.ranking import serve_ranked
from tokenflow.sim.scheduler import Look, StepRules, StepStyle

QUANTUM_S = 0.010  # of the highest level
LEVELS = 16
PROMOTION_S = 3.0
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
        self._now_s = 0.0

    def decide(self, look: Look) -> Plan:
        """Accounts for the time since the decision before, then runs the highest levels."""
        view = look.view
        self._account(view)
        jobs = [self._jobs[rid] for rid in view.rids]
        rank = np.lexsort((np.array([job.place for job in jobs]), np.array([job.level for job in jobs])))
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
            return math.inf
        until_s = [_quantum_s(job.level) - job.used_s for job in running]
        until_s += [PROMOTION_S - job.idle_s for job in idle if job.level > 0]
        return look.now_s + max(min(until_s, default=math.inf), 1e-4)

    def _account(self, view: View) -> None:
        elapsed_s, self._now_s = view.engine.now_s - self._now_s, view.engine.now_s
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
                if job.idle_s >= PROMOTION_S - 1e-9 and job.level > 0:
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
