"""The documents of `tfctl simulate`: what was simulated, one entry a run, and the lines of its files."""

import msgspec

from tokenflow.policy.plan import Action, Cause
from tokenflow.policy.states import Reason
from tokenflow.wire import Document


class TtftSpread(msgspec.Struct, kw_only=True):
    """Seconds from arrival to the first visible token; null where nobody got one. Quantiles are linear."""

    mean: float | None
    p50: float | None
    p99: float | None


class SimRun(msgspec.Struct, kw_only=True):
    """One policy over one seed's requests. Figures are defined in docs/metrics.md and docs/simulate.md.

    `capacity_tok_s` is Γ by the performance model at the workload's own mean lengths, the same for every policy;
    `demand_ratio_max` is the greatest sum of the rates of live requests over it. `wall_s` and `speed_ratio` only
    with `--timing`.
    """

    policy: str
    seed: int
    request_count: int
    completed_count: int
    aborted_count: int
    rejected_count: int
    ttft_s: TtftSpread
    raw_tok_s: float
    effective_tok_s: float
    effective_tok_s_author: float
    qos: float
    qoe_mean: float | None
    stall_s_total: float
    stall_count: int
    stalled_request_count: int
    max_idle_s_p99: float | None
    goodput_ratio: float
    tpot_s_mean: float | None
    preemption_count: int
    forced_preemption_count: int
    switch_bytes_mean: float
    load_count: int
    recompute_count: int
    recomputed_tokens: int
    makespan_s: float
    capacity_tok_s: float
    demand_ratio_max: float
    decision_count: int
    wall_s: float | None = None
    speed_ratio: float | None = None


class SimulatedEngine(msgspec.Struct, kw_only=True):
    """What was simulated. `performance_source` says where step times are from."""

    gpu: str
    model: str
    performance_source: str
    kv_tokens: int
    host_tokens: int
    page_tokens: int
    max_running: int
    d2h_bytes_s: float
    h2d_bytes_s: float
    h2d_contention_ratio: float
    interference_ratio: float
    step_overhead_s: float
    load_overlap: str
    decision_pause_s: float
    has_mixed_steps: bool


class SimulatedWorkload(msgspec.Struct, kw_only=True):
    """In the notation of the command's options."""

    arrivals: str
    input_tokens: str
    output_tokens: str
    rates: str | None
    speedup: float
    max_tokens: int | None = None  # what schedulers are told of each answer's length; null: its true length


class SimulateDocument(Document, kw_only=True):
    """`tfctl simulate --json`. The same options and seeds give the same bytes: `generated_at` is empty without
    `--timing`. `tunables` are those that were changed for the policies of ours."""

    engine: SimulatedEngine
    workload: SimulatedWorkload
    tunables: dict[str, str]
    goodput: str | None
    runs: list[SimRun]


class RequestLine(msgspec.Struct, kw_only=True):
    """One line of `--requests-out`. Times are seconds from the start of the run."""

    policy: str
    seed: int
    rid: str
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    hidden_tokens: int
    made_tokens: int
    rate_tok_s: float | None
    ttft_s: float | None
    end_s: float | None
    effective_tokens: float
    qoe: float | None
    stall_s: float
    stall_count: int
    max_idle_s: float | None
    is_good: bool
    is_aborted: bool
    preemption_count: int
    recompute_count: int
    switch_bytes: float


class DecisionLine(msgspec.Struct, kw_only=True):
    """One line of `--events`: one change that a scheduler asked for, with the terms that it gave."""

    policy: str
    seed: int
    time_s: float
    rid: str
    action: Action
    cause: Cause
    reason: Reason
    urgency_s: float | None
    runway_s: float | None
    required_runway_s: float | None
    benefit_s: float | None
    partner_rid: str | None
    is_overloaded: bool
