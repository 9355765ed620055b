"""What other tunables would have done: looks at a daemon replayed through the policy itself.

Each look is judged as it was: what an earlier decision would have changed is not followed up. Memory is taken to be
enough, and the way out and back is priced as the engine priced it at that moment. Compare two settings over the same
looks, and do not read the counts of one as a forecast.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from tfctl.documents import Effect
from tokenflow.policy.carry import Carry
from tokenflow.policy.costs import Costs
from tokenflow.policy.plan import Cause, Decision
from tokenflow.policy.planner import plan
from tokenflow.policy.standing import standing
from tokenflow.policy.states import Reason, RequestState
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.view import EngineView, RequestView, View
from tokenflow.wire import RequestRow, StatusDocument

_HOLDERS = (RequestState.RUNNING, RequestState.PREFILLING, RequestState.LOADING)
_AMPLE_TOKENS = 1e9
_DEFAULT_STEP_S = 0.03


@dataclass(frozen=True, slots=True)
class LookAt:
    """One look at a daemon. `at_s`: any clock that does not jump."""

    at_s: float
    status: StatusDocument
    rows: Sequence[RequestRow]


@dataclass(frozen=True, slots=True)
class _Case:
    """A look as the policy sees it. `transition_s`: the way out and back, as the engine priced it then."""

    rows: list[RequestView]
    engine: EngineView
    transition_s: float


class WhatIf:
    """Made of looks once; then asked for one setting after the other. `base` was in force during the looks."""

    def __init__(self, looks: Sequence[LookAt], base: Tunables) -> None:
        slots = max((sum(row.state in _HOLDERS for row in look.rows) for look in looks), default=0)
        starts = _Starts()
        self.span_s = looks[-1].at_s - looks[0].at_s if looks else 0.0
        self._cases = [_case(look, starts.rows_of(look), max(slots, 1), base) for look in looks]

    def __len__(self) -> int:
        return len(self._cases)

    def effect(self, tunables: Tunables) -> Effect:
        """Over all looks, under `tunables`."""
        carry, before = Carry(), frozenset[str]()
        safe_count = 0
        pauses: list[tuple[Decision, float]] = []
        for case in self._cases:
            view = View.from_rows(case.rows, case.engine, carry)
            decided = plan(view, tunables)
            carry = decided.carry
            safe_count += int(standing(view, tunables, decided).preemptible.sum())
            pauses += [(pause, case.transition_s) for pause in decided.pauses if pause.rid not in before]
            before = frozenset(pause.rid for pause in decided.pauses)
        left_s = [
            pause.runway_s - away_s
            for pause, away_s in pauses
            if pause.runway_s is not None and math.isfinite(pause.runway_s)  # nobody reads a batch request
        ]
        return Effect(
            safe_mean=round(safe_count / len(self._cases), 3) if self._cases else 0.0,
            pause_count=len(pauses),
            first_token_count=sum(pause.cause is Cause.FIRST_TOKEN for pause, _ in pauses),
            rescue_count=sum(pause.cause is Cause.RESCUE for pause, _ in pauses),
            least_left_s=round(min(left_s), 4) if left_s else None,
            dry_count=sum(left < 0 for left in left_s),
        )


class _Starts:
    """When each request entered its state, and how many tokens it had then, as far as the looks tell."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[RequestState, float, int]] = {}
        self._stalls: dict[
            str, tuple[float, float]
        ] = {}  # stalled seconds at the last look, length of the present stall

    def rows_of(self, look: LookAt) -> list[RequestView]:
        return [self._row(row, look.at_s) for row in look.rows if row.state.is_live]

    def _row(self, row: RequestRow, at_s: float) -> RequestView:
        state, since_s, tokens = self._since.get(row.rid, (None, at_s - row.age_s, 0))
        if state is None:  # met in the middle: a run is taken to be its first
            self._since[row.rid] = (row.state, since_s, tokens)
        elif state is not row.state:
            since_s, tokens = at_s, row.generated_tokens
            self._since[row.rid] = (row.state, since_s, tokens)
        context = row.prompt_tokens + row.generated_tokens + row.hidden_tokens
        host = float(row.kv_host_tokens or 0)
        device = float(row.kv_device_tokens or 0)
        return RequestView(
            rid=row.rid,
            state=row.state,
            arrival_s=at_s - row.age_s,
            since_s=since_s,
            rate_tok_s=float("nan") if row.rate_tok_s is None or row.runway_s is None else row.rate_tok_s,
            unread_tokens=0.0 if row.runway_s is None else max(row.runway_s, 0.0) * (row.rate_tok_s or 0.0),
            dry_s=self._dry_s(row),
            is_started=row.ttft_s is not None,
            run_tokens=float(row.generated_tokens - tokens),
            is_first_run=row.preemption_count == 0,
            context_tokens=float(context),
            kv_device_tokens=device,
            kv_host_tokens=host,
            kv_both_tokens=min(device, host),
            is_held=row.reason is Reason.PREEMPTED_OPERATOR,
        )

    def _dry_s(self, row: RequestRow) -> float:
        stall_s, dry_s = self._stalls.get(row.rid, (row.stall_s, 0.0))
        dry_s = dry_s + max(row.stall_s - stall_s, 0.0) if row.runway_s is not None and row.runway_s <= 0 else 0.0
        self._stalls[row.rid] = (row.stall_s, dry_s)
        return dry_s


def _case(look: LookAt, rows: list[RequestView], slots: int, base: Tunables) -> _Case:
    latency, quality = look.status.latency, look.status.quality
    holders = [row for row in rows if row.state in _HOLDERS]
    running_count = sum(row.state is RequestState.RUNNING for row in rows)
    costs = Costs()
    load_s = costs.load_fixed_s if latency.load_s.p99 is None else latency.load_s.p99
    required = [
        row.required_runway_s
        for row in look.rows
        if row.required_runway_s is not None and row.state is RequestState.RUNNING
    ]
    schedule_s = costs.schedule_s if latency.schedule_s.p99 is None else latency.schedule_s.p99
    if required:  # what the engine itself asked for, without its factor
        schedule_s = max(median(required) / base.safety_factor - load_s, 0.0)
    costs = replace(
        costs,
        evict_fixed_s=0.0,
        load_fixed_s=load_s,
        schedule_s=schedule_s,
        prefill_s_per_token=latency.recompute_s_per_token or costs.prefill_s_per_token,
    )
    engine = EngineView(
        now_s=look.at_s,
        slot_count=slots,
        slots_free=slots - len(holders),
        kv_total_tokens=_AMPLE_TOKENS,
        kv_free_tokens=_AMPLE_TOKENS,
        host_total_tokens=_AMPLE_TOKENS,
        host_free_tokens=_AMPLE_TOKENS,
        step_s=running_count / quality.raw_tok_s if running_count and quality.raw_tok_s > 0 else _DEFAULT_STEP_S,
        capacity_tok_s=look.status.capacity.capacity_tok_s,
        costs=costs,
    )
    return _Case(rows, engine, load_s + schedule_s)
