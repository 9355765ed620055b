"""Baselines by name."""

from collections.abc import Callable

from tokenflow.errors import UsageError
from tokenflow.sim.baselines.andes import Andes
from tokenflow.sim.baselines.chunked import Chunked
from tokenflow.sim.baselines.disaggregated import Disaggregated
from tokenflow.sim.baselines.fcfs import Fcfs
from tokenflow.sim.baselines.mlfq import Mlfq
from tokenflow.sim.baselines.pascal import Pascal
from tokenflow.sim.baselines.sglang_priority import SglangPriority
from tokenflow.sim.scheduler import Scheduler

_MAKERS: dict[str, Callable[[float], Scheduler]] = {
    "fcfs": lambda _ttft_target_s: Fcfs(),
    "chunked": lambda _ttft_target_s: Chunked(),
    "sglang-priority": lambda _ttft_target_s: SglangPriority(),
    "andes": lambda ttft_target_s: Andes(ttft_target_s=ttft_target_s),
    "mlfq": lambda _ttft_target_s: Mlfq(),
    "pascal": lambda _ttft_target_s: Pascal(),
    "disaggregated": lambda _ttft_target_s: Disaggregated(),
}

BASELINES: tuple[str, ...] = tuple(_MAKERS)


def make_baseline(name: str, *, ttft_target_s: float = 1.0) -> Scheduler:
    """A new scheduler: they keep state, so each run needs its own. Raises UsageError for an unknown name."""
    try:
        make = _MAKERS[name]
    except KeyError:
        raise UsageError(f"no baseline {name!r}", hint=f"use one of {', '.join(BASELINES)}", field="policy") from None
    return make(ttft_target_s)
