"""From the tracker and the live scheduler to the rows and sums of one telemetry message."""

import math
from collections import deque
from typing import Any

from tokenflow.policy.states import Reason, RequestState
from tokenflow.sglang.tracker import RequestTracker, TrackedRequest, preemption_count
from tokenflow.wire import Capacity, Quality, RequestRow, Tail

TTFT_WINDOW_COUNT = 512
RAW_RATE_WINDOW_S = 5.0
FREEZE_AFTER_S = 60.0
VANISHED_AFTER_S = 5.0  # a request that the scheduler no longer holds, without having told anybody


class SnapshotBuilder:
    """Keeps what rates and tails need from one snapshot to the next. Runs on the scheduler's thread."""

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker
        self._pass_number = 0
        self._last_seen_s: dict[str, float] = {}
        self._ttfts_s: deque[float] = deque(maxlen=TTFT_WINDOW_COUNT)
        self._made: deque[tuple[float, int]] = deque()
        self._frozen_rows: dict[str, RequestRow] = {}

    def reconcile(self, scheduler: Any, now_s: float) -> None:
        """Sets every live request's state from where the scheduler holds it, and ends those that it dropped."""
        self._pass_number += 1
        for batch in (scheduler.running_batch, scheduler.last_batch):
            if batch is not None:
                for req in batch.reqs:
                    if req.finished_reason is None:
                        self._place(req, RequestState.RUNNING if req.output_ids else RequestState.PREFILLING, now_s)
        if scheduler.chunked_req is not None:
            self._place(scheduler.chunked_req, RequestState.PREFILLING, now_s)
        for req in scheduler.waiting_queue:  # last: one that was just taken out may still be in the last batch
            self._place(req, RequestState.PREEMPTED if req.output_ids else RequestState.WAITING, now_s)
        self._explain_waiting(scheduler)
        for entry in list(self._tracker.requests.values()):
            if entry.seen_at != self._pass_number:
                self._end_if_gone(entry, now_s)

    def _place(self, req: Any, state: RequestState, now_s: float) -> None:
        entry = self._tracker.see(req, now_s)
        if entry is None:
            return
        entry.seen_at = self._pass_number
        entry.state = state
        self._last_seen_s[entry.rid] = now_s
        if state is RequestState.PREFILLING:
            entry.reason = Reason.ADMITTED
        elif state is RequestState.RUNNING:
            buffer = entry.buffer
            is_dry = buffer.is_stalled or (buffer.first_delivery_s is None and buffer.rate_tok_s is not None)
            entry.reason = Reason.RUNNING_STARVING if is_dry else Reason.RUNNING_SURPLUS
        elif state is RequestState.PREEMPTED:
            entry.reason = Reason.PREEMPTED_KV_FULL  # the only cause that stock SGLang has for taking a stream out

    def _explain_waiting(self, scheduler: Any) -> None:
        running_count = len(scheduler.running_batch.reqs) if scheduler.running_batch is not None else 0
        has_slot = running_count < scheduler.max_running_requests
        reason = Reason.WAITING_MEMORY if has_slot else Reason.WAITING_CAPACITY
        for entry in self._tracker.requests.values():
            if entry.state is RequestState.WAITING:
                entry.reason = reason

    def _end_if_gone(self, entry: TrackedRequest, now_s: float) -> None:
        unseen_s = now_s - self._last_seen_s.get(entry.rid, entry.arrival_s)
        if entry.req.finished_reason is not None or (entry.is_closed and unseen_s > 0.5) or unseen_s > VANISHED_AFTER_S:
            self._tracker.end(entry, now_s)

    def rows(self, now_s: float) -> list[RequestRow]:
        """One row a request, live ones first; ended ones are frozen once their reader is through."""
        self._tracker.forget_old(now_s)
        rows = []
        for entry in self._tracker.requests.values():
            entry.buffer.advance(now_s)
            rows.append(_row(entry, now_s))
        for rid, entry in self._tracker.ended.items():
            row = self._frozen_rows.get(rid)
            if row is None:
                entry.buffer.advance(now_s)
                row = _row(entry, now_s)
                if _is_read_out(entry) or now_s - (entry.ended_s or now_s) > FREEZE_AFTER_S:
                    self._frozen_rows[rid] = row
            rows.append(row)
        if len(self._frozen_rows) > 2 * len(self._tracker.ended) + 16:
            self._frozen_rows = {rid: row for rid, row in self._frozen_rows.items() if rid in self._tracker.ended}
        return rows

    def capacity(self) -> Capacity:
        """Demand and counts. Γ is the policy's to estimate and stays null until it does."""
        live = self._tracker.requests.values()
        states = [entry.state for entry in live]
        return Capacity(
            demand_tok_s=math.fsum(entry.buffer.rate_tok_s or 0.0 for entry in live),
            running_count=states.count(RequestState.RUNNING) + states.count(RequestState.PREFILLING),
            waiting_count=states.count(RequestState.WAITING),
            preempted_count=states.count(RequestState.PREEMPTED),
        )

    def quality(self, now_s: float) -> Quality:
        tracker = self._tracker
        self._ttfts_s.extend(tracker.new_ttfts_s)
        tracker.new_ttfts_s.clear()
        live = tracker.requests.values()
        return Quality(
            ttft_s=tail_of(self._ttfts_s),
            stall_s_total=tracker.totals.ended_stall_s + math.fsum(entry.buffer.stall_s for entry in live),
            raw_tok_s=self._raw_tok_s(now_s),
            preemption_total=tracker.totals.ended_preemption_count + sum(preemption_count(entry) for entry in live),
        )

    def _raw_tok_s(self, now_s: float) -> float:
        self._made.append((now_s, self._tracker.totals.generated_tokens))
        while len(self._made) > 2 and now_s - self._made[1][0] >= RAW_RATE_WINDOW_S:
            self._made.popleft()
        (first_s, first_tokens), (last_s, last_tokens) = self._made[0], self._made[-1]
        return (last_tokens - first_tokens) / (last_s - first_s) if last_s > first_s else 0.0


def tail_of(samples: deque[float]) -> Tail:
    """Median and 99th percentile by nearest rank."""
    if not samples:
        return Tail()
    ordered = sorted(samples)
    p99_index = min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)
    return Tail(p50=ordered[(len(ordered) - 1) // 2], p99=ordered[p99_index], count=len(ordered))


def _is_read_out(entry: TrackedRequest) -> bool:
    """Whether nothing about this ended request will change any more."""
    buffer = entry.buffer
    is_read = buffer.rate_tok_s is None or buffer.consumed_tokens >= buffer.delivered_tokens
    return entry.is_closed and is_read


def _row(entry: TrackedRequest, now_s: float) -> RequestRow:
    buffer = entry.buffer
    unread_tokens, runway_s = buffer.unread_tokens, buffer.runway_s
    kv = entry.req.kv
    ttft_s = entry.ttft_s
    return RequestRow(
        rid=entry.rid,
        state=entry.state,
        class_=entry.reader.class_name,
        rate_tok_s=buffer.rate_tok_s,
        rate_source=entry.reader.rate_source,
        prompt_tokens=entry.prompt_tokens,
        generated_tokens=buffer.generated_tokens,
        delivered_tokens=buffer.delivered_tokens,
        consumed_tokens=round(buffer.consumed_tokens, 3),
        unread_tokens=None if unread_tokens is None else math.floor(unread_tokens + 1e-9),
        runway_s=None if runway_s is None else round(runway_s, 4),
        kv_device_tokens=kv.kv_committed_len if kv is not None and kv.holds_kv else 0,
        preemption_count=preemption_count(entry),
        stall_s=round(buffer.stall_s, 4),
        stall_count=buffer.stall_count,
        ttft_s=None if ttft_s is None else round(ttft_s, 4),
        age_s=round((entry.ended_s or now_s) - entry.arrival_s, 3),
        reason=entry.reason,
        parent_rid=entry.parent_rid,
    )
