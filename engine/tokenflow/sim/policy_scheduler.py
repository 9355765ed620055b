"""The real policy as the simulated engine's scheduler: asked when the live engine's governor would ask it."""

from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from tokenflow.policy.cadence import IDLE_DECISION_S
from tokenflow.policy.plan import Decision, Plan
from tokenflow.policy.planner import plan
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.view import PREEMPTED, PREFILLING, RUNNING, View
from tokenflow.sim.scheduler import Look, StepRules, StepStyle

# SGLang's chunk on a large GPU; with mixed steps a chunk is what the others' tokens are apart, so Sarathi-Serve's.
CHUNK_TOKENS = {StepStyle.SEPARATE: 8192, StepStyle.MIXED: 2048}


def _missing_tokens(view: View, rows: "NDArray[Any]") -> "NDArray[np.float64]":
    """What of their context has to be computed: it is neither on the device nor on the host."""
    there = np.maximum(view.kv_device_tokens[rows], view.kv_host_tokens[rows])
    missing: NDArray[np.float64] = np.maximum(view.context_tokens[rows] - there, 0.0)
    return missing


class PolicyScheduler:
    """`tunables.variant` says which policy. By default steps are SGLang's: prefill goes first and decodes nobody. Mixed
    ones are SGLang's with `--enable-mixed-chunk`.

    `pause_s`: after a decision that changed nothing it is asked again so much later, if nothing happens meanwhile.
    """

    def __init__(
        self,
        tunables: Tunables,
        *,
        style: StepStyle = StepStyle.SEPARATE,
        chunk_tokens: int = CHUNK_TOKENS[StepStyle.SEPARATE],
        pause_s: float = 0.0,
    ) -> None:
        self.tunables = tunables
        self._pause_s = pause_s
        self.rules = StepRules(style, chunk_tokens, uses_host=True, keeps_mixed=style is StepStyle.MIXED)

    @property
    def name(self) -> str:
        return self.tunables.variant.value

    def decide(self, look: Look) -> Plan:
        made = plan(look.view, self.tunables)
        if len(made.starts) > 1:
            return structs.replace(made, starts=self._of_the_next_step(look.view, made))
        return made

    def _of_the_next_step(self, view: View, made: Plan) -> tuple[Decision, ...]:
        """As in SGLang: whom the next step's chunk has no room for stays where it is, and is planned for anew."""
        left_tokens = self.rules.chunk_tokens - int(_missing_tokens(view, view.state == PREFILLING).sum())
        if self.rules.style is StepStyle.MIXED:
            left_tokens -= int((view.state == RUNNING).sum()) - len(made.pauses)
        for number, decision in enumerate(made.starts):
            if left_tokens <= 0 and number:
                return made.starts[:number]
            left_tokens -= max(int(_missing_tokens(view, np.array([decision.row]))[0]), 1)
        return made.starts

    def ask_again_s(self, look: Look, plan: Plan) -> float:
        """While somebody waits or is paused, before every step, or after `pause_s` if there was nothing to do."""
        if not bool((look.view.state <= PREEMPTED).any()):
            return look.now_s + IDLE_DECISION_S
        return look.now_s if plan.pauses or plan.starts or plan.releases else look.now_s + self._pause_s
