"""Every policy that can be simulated, by its name."""

from dataclasses import replace

from tokenflow.errors import UsageError
from tokenflow.policy.states import Variant
from tokenflow.policy.tunables import Tunables
from tokenflow.sim.baselines import BASELINES, make_baseline
from tokenflow.sim.policy_scheduler import CHUNK_TOKENS, PolicyScheduler
from tokenflow.sim.scheduler import Scheduler, StepStyle

OURS = (Variant.TOKENFLOW, Variant.PAPER, Variant.GUIDE)  # the policy's own `fcfs` is not stock: see baselines
POLICIES = tuple(variant.value for variant in OURS) + BASELINES


def make_scheduler(
    name: str,
    tunables: Tunables,
    *,
    pause_s: float = 0.0,
    chunk_tokens: int | None = None,
    has_mixed_steps: bool = False,
) -> Scheduler:
    """A new one for each run; `pause_s` and `has_mixed_steps` are of ours (see PolicyScheduler). Raises UsageError for
    an unknown name.

    `chunk_tokens` None takes the policy's own.
    """
    if name not in POLICIES:
        raise UsageError(f"there is no policy {name!r}", hint=f"use {', '.join(POLICIES)}", field="policy")
    if name in BASELINES:
        return make_baseline(name, chunk_tokens, ttft_target_s=tunables.ttft_target_s)
    wanted = replace(tunables, variant=Variant(name))
    style = StepStyle.MIXED if has_mixed_steps else StepStyle.SEPARATE
    return PolicyScheduler(wanted, style=style, chunk_tokens=chunk_tokens or CHUNK_TOKENS[style], pause_s=pause_s)
