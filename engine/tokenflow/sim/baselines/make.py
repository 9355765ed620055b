"""Baselines by name."""

from collections.abc import Callable
from dataclasses import replace

from tokenflow.errors import UsageError
from tokenflow.sim.baselines import andes, chunked, disaggregated, mlfq, pascal
from tokenflow.sim.baselines.andes import Andes
from tokenflow.sim.baselines.chunked import Chunked
from tokenflow.sim.baselines.disaggregated import Disaggregated
from tokenflow.sim.baselines.fcfs import SGLANG_RULES, Fcfs
from tokenflow.sim.baselines.mlfq import Mlfq
from tokenflow.sim.baselines.pascal import Pascal
from tokenflow.sim.baselines.sglang_priority import SglangPriority
from tokenflow.sim.scheduler import Scheduler, StepRules

_MAKERS: dict[str, Callable[[int | None, float], Scheduler]] = {
    "fcfs": lambda chunk, _ttft_s: Fcfs(_rules(chunk)),
    "chunked": lambda chunk, _ttft_s: Chunked(chunk or chunked.CHUNK_TOKENS),
    "sglang-priority": lambda chunk, _ttft_s: SglangPriority(_rules(chunk)),
    "andes": lambda chunk, ttft_s: Andes(chunk or andes.CHUNK_TOKENS, ttft_target_s=ttft_s),
    "mlfq": lambda chunk, _ttft_s: Mlfq(chunk or mlfq.CHUNK_TOKENS),
    "pascal": lambda chunk, _ttft_s: Pascal(chunk or pascal.CHUNK_TOKENS),
    "disaggregated": lambda chunk, _ttft_s: Disaggregated(chunk or disaggregated.CHUNK_TOKENS),
}

BASELINES: tuple[str, ...] = tuple(_MAKERS)


def make_baseline(name: str, chunk_tokens: int | None = None, *, ttft_target_s: float = 1.0) -> Scheduler:
    """A new scheduler: they keep state, so each run needs its own. Raises UsageError for an unknown name.

    `chunk_tokens` None takes the baseline's own. `ttft_target_s` is what Andes' readers expect.
    """
    try:
        make = _MAKERS[name]
    except KeyError:
        raise UsageError(f"no baseline {name!r}", hint=f"use one of {', '.join(BASELINES)}", field="policy") from None
    return make(chunk_tokens, ttft_target_s)


def _rules(chunk_tokens: int | None) -> StepRules:
    return SGLANG_RULES if chunk_tokens is None else replace(SGLANG_RULES, chunk_tokens=chunk_tokens)
