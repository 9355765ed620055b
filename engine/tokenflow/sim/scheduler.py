"""What the simulated engine asks at a step boundary, and what may be answered: ours and every baseline alike."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.plan import Plan
from tokenflow.policy.view import View
from tokenflow.sim.performance import PerformanceModel


class StepStyle(StrEnum):
    """How prefill and decode share the GPU."""

    SEPARATE = "separate"  # a step with prefill goes first and decodes nobody (SGLang)
    MIXED = "mixed"  # all running streams decode in every step, prompts fill what is left of the chunk (Sarathi, vLLM)


@dataclass(frozen=True, slots=True)
class StepRules:
    """How the engine builds steps for a scheduler.

    `chunk_tokens` bounds the new tokens of a step; in a mixed step the decoding streams count one each.
    `has_prefill_pool`: prompts are computed by a second GPU like the first, and their KV is handed over (DistServe).
    `uses_host`: KV may go to the host; without it every pause drops or keeps. `joins_decode`: a resumed stream whose
    KV is on the device decodes in the next step with the others (vLLM and engines like it), and one that is loaded
    does when its copy is there; else it takes a prefill step of one token, as in SGLang. `keeps_mixed`: whoever decoded
    in a mixed step cannot be paused right behind it (SGLang has them in a batch that is merged only after the plugin's
    turn), but after the next step without prefill.
    """

    style: StepStyle = StepStyle.SEPARATE
    chunk_tokens: int = 8192
    has_prefill_pool: bool = False
    uses_host: bool = False
    joins_decode: bool = False
    keeps_mixed: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """All that a scheduler is shown. Arrays have the view's rows and belong to the engine: read them, keep copies.

    The view is exactly what the live engine gives the policy: a row is WAITING, PREFILLING, LOADING, RUNNING or
    PREEMPTED; `context_tokens` is the KV that it needs; `since_s` when it entered that; `rate_tok_s` NaN for no
    reader; `is_started` that a visible token was made; `run_tokens` are of the present run.
    """

    view: View
    prompt_tokens: NDArray[np.int64]
    made_tokens: NDArray[np.int64]  # hidden ones included
    pause_count: NDArray[np.int64]
    performance: PerformanceModel

    @property
    def now_s(self) -> float:
        return self.view.engine.now_s


class Scheduler(Protocol):
    """Decides who runs. Asked at a step boundary whenever something happened (an arrival, an end, a first token, a
    transfer) while somebody waits or is paused, when the pool is about to be full, and when `ask_again_s` says.

    The answer is the policy's `Plan`: only what changes, `pauses` before `releases` before `starts` before `writes`.

    * ADMIT, RESUME, RESUME_LOAD, RESUME_RECOMPUTE: the row gets a slot, in the order given. It computes what is
      missing (a resume always at least one token), in chunks, in that order; where pages are still being freed it
      holds its slot and waits for them. Starting somebody beyond slots or memory is a fault and ends the run.
    * PAUSE_KEEP: leaves its slot, its KV stays on the device until a release or a recompute by the engine.
    * PAUSE_OFFLOAD: what the host lacks is written there, then the device pages are freed.
    * PAUSE_DROP: the device pages are freed at once; what the host has stays there.
    * A row that is prefilling may be paused too; what it has computed is its KV.

    If the pool cannot take the next step and the plan does not help, the engine takes out the latest arrival and
    drops its KV, as vLLM does; it counts as a pause of its own. A Scheduler that wants it otherwise looks at
    `view.engine.kv_free_tokens` and acts earlier.
    """

    @property
    def name(self) -> str: ...

    @property
    def rules(self) -> StepRules: ...

    def decide(self, look: Look) -> Plan:
        """The answer. May keep state of its own by rid; `Plan.carry` goes into the next view, whoever reads it."""
        ...

    def ask_again_s(self, look: Look, plan: Plan) -> float:
        """Simulated time at which it must be asked again though nothing has happened; `now_s` for every step, inf for
        never. Called right after `decide`."""
        ...
