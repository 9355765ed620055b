"""Drives the pure policy inside the scheduler: fills its table from the live requests, and asks it.

Runs on the scheduler's thread of rank 0. What it decides is carried out by `actuator`, or only shown, by the mode.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenflow.policy.carry import Carry
from tokenflow.policy.estimator import CostEstimator
from tokenflow.policy.explain import explain
from tokenflow.policy.explanation import Explanation
from tokenflow.policy.plan import Plan
from tokenflow.policy.planner import plan
from tokenflow.policy.standing import standing
from tokenflow.policy.states import Reason, RequestState
from tokenflow.policy.step_meter import StepMeter
from tokenflow.policy.table import RequestTable
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.urgency import far_ahead
from tokenflow.policy.view import LOADING, PREEMPTED, RUNNING, EngineView, RequestView, StateCode, View
from tokenflow.sglang.kept_kv import KeptKv
from tokenflow.sglang.kv_tree import NO_COPIES, Copies
from tokenflow.sglang.kv_watch import KvWatch
from tokenflow.sglang.settings import Priors
from tokenflow.sglang.step_meter import LaunchStamps
from tokenflow.sglang.tracker import RequestTracker, TrackedRequest
from tokenflow.wire import Latency, Tail

COPIES_FRESH_S = 0.25  # how long a look at the tree for a paused stream's KV is believed
SHARING_FRESH_S = 1.0  # the same for a running one, of which only what it shares is asked there
_HOLDERS = (RequestState.RUNNING, RequestState.PREFILLING, RequestState.LOADING)
_PREEMPTED = RequestState.PREEMPTED
_CODES = {state: int(StateCode.of(state)) for state in RequestState}
_NO_READER = float("nan")
_CHANGING = (
    "state",
    "since_s",
    "rate_tok_s",
    "unread_tokens",
    "dry_s",
    "is_started",
    "run_tokens",
    "is_first_run",
    "context_tokens",
    "remaining_tokens",
    "kv_device_tokens",
    "kv_host_tokens",
    "kv_both_tokens",
    "kv_shared_tokens",
    "may_pause",
    "is_held",
)


@dataclass(slots=True)
class _Run:
    """A request's present run or pause, as the table wants it."""

    state: RequestState
    since_s: float
    start_tokens: int = 0
    run_count: int = 0
    copies: Copies = NO_COPIES
    copies_s: float = float("-inf")


class PolicyDriver:
    """`decide` gives the plan of this moment; `tunables` may be replaced between two calls."""

    def __init__(
        self, scheduler: Any, tracker: RequestTracker, tunables: Tunables, kept: KeptKv, priors: Priors | None = None
    ) -> None:
        priors = priors or Priors()
        self.tunables = tunables
        self.costs = CostEstimator(priors.costs())
        self.kv = KvWatch(scheduler, self.costs, tracker.counters)
        self._scheduler = scheduler
        self._tracker = tracker
        self._kept = kept
        self.steps = StepMeter(self.costs, priors.decode_fit())
        self.stamps = LaunchStamps(self.steps, tracker.counters)
        self._table = RequestTable()
        self._runs: dict[str, _Run] = {}
        self._carry = Carry()
        self._view: View | None = None
        self._plan: Plan | None = None
        self.capacity_tok_s: float | None = None

    def decide(self, now_s: float) -> Plan:
        """Fills the table and asks the policy. The tracker's states must be of this moment."""
        begin_s = time.perf_counter()
        view = self._look(now_s)
        decided = plan(view, self.tunables)
        self._tracker.counters.decision_s.observe(time.perf_counter() - begin_s)
        self._carry, self._view, self._plan = decided.carry, view, decided
        return decided

    @property
    def is_overloaded(self) -> bool:
        return self._carry.is_overloaded

    def explain_rows(self) -> None:
        """Writes the policy's terms of the last decision into the tracked streams, at the pace of telemetry."""
        view, decided = self._view, self._plan
        if view is None or decided is None:
            return
        terms = standing(view, self.tunables, decided)
        for row, rid in enumerate(view.rids):
            entry = self._tracker.requests.get(rid)
            if entry is None:
                continue
            stream = entry.stream
            has_reader = stream.buffer.has_reader
            stream.required_runway_s = round(float(terms.required_runway_s[row]), 4) if has_reader else None
            stream.preemptible = bool(terms.preemptible[row]) if has_reader else None
            reason = terms.reasons[row]
            if reason is not None:
                stream.reason = own_reason(entry, reason)

    def far_ahead_rids(self) -> frozenset[str]:
        """Who was far ahead of its reader when it was decided last."""
        view = self._view
        if view is None:
            return frozenset()
        rows = far_ahead(view, self.tunables, np.arange(len(view))).nonzero()[0]
        return frozenset(view.rids[row] for row in rows.tolist())

    def explain(self, rid: str) -> Explanation | None:
        """Every term of the last decision about one request; None where it was not there yet."""
        if self._view is None or self._plan is None or rid not in self._table:
            return None
        return explain(self._view, self.tunables, self._plan, rid)

    def latency(self) -> Latency:
        costs = self.costs
        return Latency(
            evict_s=_tail(costs.evict_s),
            load_s=_tail(costs.load_s),
            schedule_s=_tail(costs.schedule_s),
            recompute_s_per_token=costs.prefill.coefficients[2] if costs.prefill.count else None,
        )

    def _look(self, now_s: float) -> View:
        requests = self._tracker.requests
        for rid in [rid for rid in self._runs if rid not in requests]:
            del self._runs[rid]
            self._table.remove(rid)
            self.costs.observe_release(now_s)
        if len(requests) > len(self._runs):
            for entry in requests.values():
                self._register(entry, now_s)
        pausable = {id(req) for req in self._scheduler.running_batch.reqs} if self._scheduler.running_batch else set()
        rows = []
        for rid in self._table.rids:
            entry = requests[rid]
            rows.append(self._row(entry, self._runs[rid], now_s, id(entry.req) in pausable))
        self._table.fill(_CHANGING, rows)
        return self._table.view(self._engine_view(now_s), self._carry)

    def _engine_view(self, now_s: float) -> EngineView:
        table, state = self._table, self._table.column("state")
        holders = int(((state >= RUNNING) & (state <= LOADING)).sum())
        mean_context = float(table.column("context_tokens").mean()) if len(table) else 0.0
        is_paused = state == PREEMPTED
        on_device = (table.column("kv_device_tokens") - table.column("kv_shared_tokens"))[is_paused]
        on_host_only = (table.column("kv_host_tokens") - table.column("kv_both_tokens"))[is_paused]
        paused_device_tokens = int(on_device.sum()) + self._shared_by_paused_tokens()
        paused_host_only_tokens = int(on_host_only.sum())
        pools = self.kv.pools()
        slots = int(self._scheduler.max_running_requests)
        self.capacity_tok_s = self.steps.capacity_tok_s(slots, pools.total_tokens, mean_context)
        return EngineView(
            now_s=now_s,
            slot_count=slots,
            slots_free=max(slots - holders, 0),
            kv_total_tokens=pools.total_tokens,
            kv_free_tokens=max(pools.unused_tokens + pools.cached_tokens - paused_device_tokens, 0),
            page_tokens=int(self._scheduler.page_size),
            kv_bytes_per_token=self.kv.bytes_per_token if self.kv.has_host_pool else 0.0,
            host_total_tokens=pools.host_total_tokens,
            host_free_tokens=pools.host_free_tokens(paused_host_only_tokens),
            d2h_backlog_bytes=self.kv.d2h_backlog_bytes,
            h2d_backlog_bytes=self.kv.h2d_backlog_bytes,
            step_s=self.steps.step_s(holders, holders * mean_context),
            capacity_tok_s=self.capacity_tok_s,
            stream_limit_tok_s=1.0 / self.steps.step_s(1, mean_context) if self.capacity_tok_s else None,
            has_mixed_steps=bool(self._scheduler.is_mixed_chunk),
            costs=self.costs.costs(now_s, self.tunables.tail_quantile, mean_context),
        )

    def _shared_by_paused_tokens(self) -> int:
        """What several paused streams share, once; what somebody runs on is no cache that could be evicted."""
        runs = self._runs.values()
        in_use = {run.copies.shared_node_id for run in runs if run.state is not _PREEMPTED}
        shared = {run.copies.shared_node_id: run.copies.shared_tokens for run in runs if run.state is _PREEMPTED}
        return sum(tokens for node_id, tokens in shared.items() if node_id not in in_use)

    def _register(self, entry: TrackedRequest, now_s: float) -> None:
        """A request that is new here: what will not change of its row."""
        stream = entry.stream
        if stream.rid in self._runs:
            return
        self._runs[stream.rid] = _Run(RequestState.WAITING, stream.arrival_s)
        self.costs.observe_arrival(now_s)
        most = int(entry.req.sampling_params.max_new_tokens)
        self._table.add(RequestView(stream.rid, arrival_s=stream.arrival_s, length_tokens=most))

    def _row(self, entry: TrackedRequest, run: _Run, now_s: float, is_pausable: bool) -> tuple[float, ...]:
        """Values of the columns `_CHANGING`."""
        stream, req = entry.stream, entry.req
        buffer, state = stream.buffer, stream.state
        buffer.advance(now_s)
        made = buffer.made_tokens
        if run.state is not state:
            self._note_change(run, state, made, now_s)
        device = host = both = 0
        is_paused = state is _PREEMPTED
        fresh_s = COPIES_FRESH_S if is_paused else SHARING_FRESH_S
        if state is not RequestState.WAITING and now_s - run.copies_s > fresh_s:
            run.copies, run.copies_s = self._kept.copies(req), now_s
        if is_paused:
            device, host, both = run.copies[:3]
        elif state in _HOLDERS:
            device = req.kv.kv_committed_len
            both = host = min(self._kept.written_tokens(req), device)
        stream.kv_device_tokens, stream.kv_host_tokens = device, host
        # Nobody reads what a client does not drain: its stream is the first to make room, however far ahead it is.
        rate_tok_s = buffer.rate_tok_s if buffer.has_reader and not entry.is_blocked else None
        return (
            _CODES[state],
            run.since_s,
            _NO_READER if rate_tok_s is None else rate_tok_s,
            max(buffer.generated_tokens - _unsent_tokens(entry) - buffer.consumed_tokens, 0.0),
            buffer.dry_s,
            buffer.generated_tokens > 0,
            made - run.start_tokens,
            run.run_count <= 1,
            stream.prompt_tokens + (made - 1 if made else 0),
            max(int(req.sampling_params.max_new_tokens) - made, 0),
            device,
            host,
            both,
            min(run.copies.shared_tokens, device),
            is_pausable and can_come_back(req),
            entry.is_kept_out,
        )

    def _note_change(self, run: _Run, state: RequestState, made: int, now_s: float) -> None:
        """The request has entered another state: a run begins or ends."""
        was_holder, is_holder = run.state in _HOLDERS, state in _HOLDERS
        run.state = state
        if was_holder == is_holder:
            return
        run.since_s, run.copies_s = now_s, float("-inf")
        if is_holder:
            run.run_count += 1
            run.start_tokens = made


def own_reason(entry: TrackedRequest, reason: Reason) -> Reason:
    """The policy holds whom it is told to hold. Where no operator has, the client has more than it takes."""
    is_backlog = reason is Reason.PREEMPTED_OPERATOR and not entry.is_held
    return Reason.PREEMPTED_SURPLUS if is_backlog else reason


def _unsent_tokens(entry: TrackedRequest) -> int:
    """Made, but held back by SGLang: with a stream interval, or where a stop string may have begun. While the stream is
    paused nobody sends them."""
    return max(len(entry.req.output_ids) - entry.req.send_token_offset, 0) if entry.is_streamed else 0


def can_come_back(req: Any) -> bool:
    """Requests that cannot be taken out and brought back without loss are never victims."""
    return not (
        req.finished_reason is not None
        or req.to_finish is not None
        or req.input_embeds is not None
        or req.skip_radix_cache_insert
        or req.session is not None
        or req.beam_group is not None
        or req.return_logprob
        or req.return_hidden_states  # and what else is gathered step by step, or by the place of KV in the pool
        or req.return_routed_experts
        or req.return_indexer_topk
        or req.multimodal_inputs is not None
    )


def _tail(samples: Any) -> Tail:
    count = samples.count
    return Tail(p50=samples.quantile(0.5), p99=samples.quantile(0.99), count=count) if count else Tail()
