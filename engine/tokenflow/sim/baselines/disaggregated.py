"""DistServe (arXiv 2401.09670): one pool computes prompts, another decodes; both first come, first served.

A prompt never delays decoding, at the price of a second GPU: compare it per GPU. Simplified: one GPU a pool, like the
one simulated, and a hand-over of KV at the speed of the link between host and device. No preemption but vLLM's.
"""

import math

from tokenflow.policy.plan import Plan
from tokenflow.sim.baselines.draft import Draft
from tokenflow.sim.baselines.fcfs import admit_behind_growth
from tokenflow.sim.scheduler import Look, StepRules, StepStyle

CHUNK_TOKENS = 8192


class Disaggregated:
    """The decoding pool admits; the engine has the prefill pool compute what is admitted."""

    name = "disaggregated"

    def __init__(self, chunk_tokens: int = CHUNK_TOKENS) -> None:
        self.rules = StepRules(style=StepStyle.SEPARATE, chunk_tokens=chunk_tokens, has_prefill_pool=True)

    def decide(self, look: Look) -> Plan:
        """Starts the oldest while they fit into the decoding pool."""
        draft = Draft(look.view)
        admit_behind_growth(draft)
        return draft.plan()

    def ask_again_s(self, look: Look, plan: Plan) -> float:
        """Places and pages come free only when something happens."""
        return math.inf
