"""First come, first served, run to completion: stock SGLang, and vLLM with other rules.

Sources: SGLang 0.5.23 (prefill goes first, conservative admission, retraction of whoever has made least) and vLLM 0.19
(decode first, prompts in chunks behind it, admission as soon as a prompt fits, preemption of the latest). Simplified:
no prefix cache, and in vLLM a prompt is let in when all of it fits, not chunk by chunk.
"""

import math

from tokenflow.policy.plan import Plan
from tokenflow.sim.baselines.draft import Draft
from tokenflow.sim.baselines.sglang_reserve import SglangReserve
from tokenflow.sim.scheduler import Look, StepRules, StepStyle

SGLANG_RULES = StepRules(style=StepStyle.SEPARATE, chunk_tokens=8192)
VLLM_RULES = StepRules(style=StepStyle.MIXED, chunk_tokens=2048)


class Fcfs:
    """SGLang's way with `SGLANG_RULES`; vLLM's with mixed steps, which reserve nothing."""

    name = "fcfs"

    def __init__(self, rules: StepRules = SGLANG_RULES) -> None:
        self.rules = rules
        self._reserve = SglangReserve() if rules.style is StepStyle.SEPARATE else None

    def decide(self, look: Look) -> Plan:
        """Starts the oldest while they fit."""
        draft = Draft(look.view)
        if self._reserve is None:
            admit_behind_growth(draft)
        else:
            self._reserve.retract(draft, look.made_tokens)
            if not draft.pauses:
                self._reserve.start_in_order(draft, draft.seekers)
        return draft.plan()

    def ask_again_s(self, look: Look, plan: Plan) -> float:
        """Places and pages come free only when something happens."""
        return math.inf


def admit_behind_growth(draft: Draft) -> None:
    """vLLM's order in a step: those who run allocate first; only if they all could is anybody let in."""
    growth = draft.growth_tokens(1)
    if growth <= draft.free_tokens:
        draft.start_in_order(draft.seekers, growth)
