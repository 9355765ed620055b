"""A set-up, and one run of it: any policy over any seed, with the same arrivals for all."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tokenflow.policy.tunables import Tunables
from tokenflow.quality.goodput import GoodputLimits
from tokenflow.sim.engine import OnPlan, SimEngine
from tokenflow.sim.performance import Link, PerformanceModel, StepWork
from tokenflow.sim.policies import make_scheduler
from tokenflow.sim.records import RequestRecord, Sample
from tokenflow.sim.settings import EngineSettings
from tokenflow.sim.state import SwitchCounts
from tokenflow.sim.workload import SimRequest


@dataclass(frozen=True, slots=True)
class Setup:
    """What stays the same over policies and seeds. `requests_of` draws a seed's requests; `link` replaces the
    performance model's own."""

    performance: PerformanceModel
    settings: EngineSettings
    requests_of: Callable[[int], Sequence[SimRequest]]
    link: Link
    tunables: Tunables = field(default_factory=Tunables)
    limits: GoodputLimits = field(default_factory=GoodputLimits)
    chunk_tokens: int | None = None  # None: each policy's own
    decision_pause_s: float = 0.0  # of ours, after a decision that changed nothing
    has_mixed_steps: bool = False  # ours decode in steps with prefill too


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run, finished. Requests are in order of their ends. `wall_s` is real time."""

    policy: str
    seed: int
    records: Sequence[RequestRecord]
    samples: Sequence[Sample]
    counts: SwitchCounts
    rejected_count: int
    decision_count: int
    end_s: float
    capacity_tok_s: float
    demand_max_tok_s: float
    wall_s: float


def run_one(
    setup: Setup,
    policy: str,
    seed: int,
    *,
    on_plan: OnPlan | None = None,
    on_progress: Callable[[int, float], None] | None = None,
) -> Outcome:
    """Raises UsageError for an unknown policy, SimulationError where the run cannot go on."""
    scheduler = make_scheduler(
        policy,
        setup.tunables,
        pause_s=setup.decision_pause_s,
        chunk_tokens=setup.chunk_tokens,
        has_mixed_steps=setup.has_mixed_steps,
    )
    requests = setup.requests_of(seed)
    begin_s = time.perf_counter()
    engine = SimEngine(
        scheduler,
        setup.performance,
        setup.settings,
        link=setup.link,
        ttft_target_s=setup.tunables.ttft_target_s,
        limits=setup.limits,
        tail_quantile=setup.tunables.tail_quantile,
        on_plan=on_plan,
        on_progress=on_progress,
    )
    engine.run(requests)
    return Outcome(
        policy=policy,
        seed=seed,
        records=engine.clerk.records,
        samples=engine.clerk.series.samples,
        counts=engine.state.counts,
        rejected_count=engine.rejected_count,
        decision_count=engine.decision_count,
        end_s=engine.state.now_s,
        capacity_tok_s=workload_capacity_tok_s(setup.performance, setup.settings, requests),
        demand_max_tok_s=engine.clerk.demand_max_tok_s,
        wall_s=time.perf_counter() - begin_s,
    )


def workload_capacity_tok_s(
    performance: PerformanceModel, settings: EngineSettings, requests: Sequence[SimRequest]
) -> float:
    """Γ of a workload: answers' tokens per second with the largest batch that fits, prompts included.

    A request of mean lengths costs its prefill and, for each token, its share of a decode step of B streams whose
    contexts are half-way through their answers; B is bounded by slots and memory.
    """
    if not requests:
        return 0.0
    prompt = float(np.mean([request.prompt_tokens for request in requests]))
    output = float(np.mean([request.output_tokens for request in requests]))
    context = prompt + output / 2.0
    batch = max(min(settings.slot_count, int(settings.kv_tokens // context), len(requests)), 1)
    decode_s = performance.step_s(StepWork(decode_batch=batch, decode_kv_tokens=batch * context))
    decode_s += settings.step_overhead_s
    new = max(round(prompt), 1)
    both = performance.step_s(StepWork(piece_count=2, new_tokens=2 * new, pair_count=float(new) * (new + 1)))
    one = performance.step_s(StepWork(piece_count=1, new_tokens=new, pair_count=new * (new + 1) / 2.0))
    prefill_s = max(both - one, 0.0)  # of one prompt among others: the step's fixed part is shared
    return output / (prefill_s + output * decode_s / batch)
