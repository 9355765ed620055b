"""The real policy as the simulated engine's scheduler: asked when the live engine's governor would ask it."""

from tokenflow.policy.cadence import IDLE_DECISION_S
from tokenflow.policy.plan import Plan
from tokenflow.policy.planner import plan
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.view import PREEMPTED
from tokenflow.sim.scheduler import Look, StepRules, StepStyle

CHUNK_TOKENS = 8192  # SGLang's chunk on a large GPU


class PolicyScheduler:
    """`tunables.variant` says which policy. By default steps are SGLang's: prefill goes first and decodes nobody."""

    def __init__(
        self, tunables: Tunables, *, style: StepStyle = StepStyle.SEPARATE, chunk_tokens: int = CHUNK_TOKENS
    ) -> None:
        self.tunables = tunables
        self.rules = StepRules(style, chunk_tokens, uses_host=True)

    @property
    def name(self) -> str:
        return self.tunables.variant.value

    def decide(self, look: Look) -> Plan:
        return plan(look.view, self.tunables)

    def ask_again_s(self, look: Look, plan: Plan) -> float:
        """While somebody waits or is paused, before every step."""
        if bool((look.view.state <= PREEMPTED).any()):
            return look.now_s
        return look.now_s + IDLE_DECISION_S
