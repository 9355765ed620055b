"""Sarathi-Serve (arXiv 2403.02310): stall-free batches, decode first and prompts in chunks behind it.

First come, first served; a step holds at most `chunk_tokens` new tokens, so a long prompt never stops those who run.
Simplified: the budget is fixed (Sarathi derives it from a limit on the time between tokens), and memory is vLLM's,
which Sarathi is built on: no reserve, the latest is preempted and recomputed.
"""

import math

from tokenflow.policy.plan import Plan
from tokenflow.sim.baselines.draft import Draft
from tokenflow.sim.baselines.fcfs import admit_behind_growth
from tokenflow.sim.scheduler import Look, StepRules, StepStyle

CHUNK_TOKENS = 2048  # Sarathi-Serve's budget under a relaxed limit; its 512 under a strict one doubles a burst's TTFT


class Chunked:
    """`chunk_tokens` is the token budget of a step."""

    name = "chunked"

    def __init__(self, chunk_tokens: int = CHUNK_TOKENS) -> None:
        self.rules = StepRules(style=StepStyle.MIXED, chunk_tokens=chunk_tokens)

    def decide(self, look: Look) -> Plan:
        """Starts the oldest while they fit."""
        draft = Draft(look.view)
        admit_behind_growth(draft)
        return draft.plan()

    def ask_again_s(self, look: Look, plan: Plan) -> float:
        """Places and pages come free only when something happens."""
        return math.inf
