"""From the tracker and the live scheduler to the streams and sums of one telemetry message.

This runs on the scheduler's thread ten times a second: it sets states and counts, and leaves arithmetic to the reader.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from tokenflow.link import StreamState
from tokenflow.policy.states import Reason, RequestState
from tokenflow.sglang.tracker import RequestTracker, TrackedRequest
from tokenflow.wire import Capacity, Latency, Quality, Tail

TTFT_WINDOW_COUNT = 512
RAW_RATE_WINDOW_S = 5.0
RETRACTED_KEPT_COUNT = 256
VANISHED_AFTER_S = 5.0  # a request that the scheduler no longer holds, without having told anybody


class SnapshotBuilder:
    """Keeps what rates and tails need from one snapshot to the next. Runs on the scheduler's thread."""

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker
        self._retracted: list[TrackedRequest] = []
        self._ttfts_s: deque[float] = deque(maxlen=TTFT_WINDOW_COUNT)
        self._ttft_tail = Tail()
        self._ways_s: deque[tuple[float, float]] = deque(maxlen=TTFT_WINDOW_COUNT)
        self._way_tails = (Tail(), Tail())
        self._made: deque[tuple[float, int, float]] = deque()

    def take_retracted(self) -> list[TrackedRequest]:
        """Those whom SGLang itself was last found to have taken out, once."""
        taken, self._retracted = self._retracted, []
        return taken

    def reconcile(self, scheduler: Any, now_s: float) -> Capacity:
        """Sets every live request's state from where the scheduler holds it, and ends those that it dropped.

        Demand and counts come out; Γ is the policy's to estimate and stays null until it does.
        """
        for batch in (scheduler.running_batch, scheduler.last_batch):
            if batch is not None:
                for req in batch.reqs:
                    if req.finished_reason is None:
                        self._place_running(req, now_s)
        if scheduler.chunked_req is not None:
            self._place_running(scheduler.chunked_req, now_s)
        self._place_waiting(scheduler, now_s)
        del self._retracted[:-RETRACTED_KEPT_COUNT]  # while observing nobody takes them
        capacity = Capacity()
        for entry in list(self._tracker.requests.values()):
            if entry.last_seen_s != now_s and self._is_gone(entry, now_s):
                self._tracker.end(entry, now_s)
                continue
            buffer = entry.stream.buffer
            capacity.demand_tok_s += (buffer.rate_tok_s or 0.0) if buffer.has_reader else 0.0
            match entry.stream.state:
                case RequestState.WAITING:
                    capacity.waiting_count += 1
                    age_s = now_s - entry.stream.arrival_s
                    capacity.waiting_age_s = max(age_s, capacity.waiting_age_s or 0.0)
                case RequestState.PREEMPTED:
                    capacity.preempted_count += 1
                    if not entry.is_held:  # by an operator: that is not the policy's to end
                        age_s = now_s - (now_s if entry.paused_since_s is None else entry.paused_since_s)
                        capacity.preempted_age_s = max(age_s, capacity.preempted_age_s or 0.0)
                case _:
                    capacity.running_count += 1
        return capacity

    def _place_running(self, req: Any, now_s: float) -> None:
        entry = self._tracker.requests.get(req.rid) or self._tracker.see(req, now_s)
        if entry is None:
            return
        entry.last_seen_s = now_s
        stream = entry.stream
        stream.kv_device_tokens = req.kv.kv_committed_len
        stream.preemption_count = req.retraction_count
        if req.output_ids:
            if stream.state is not RequestState.RUNNING:
                stream.state, stream.reason = RequestState.RUNNING, None  # until the policy says: see tokenflow.rows
        else:
            stream.state, stream.reason = RequestState.PREFILLING, Reason.ADMITTED

    def _place_waiting(self, scheduler: Any, now_s: float) -> None:
        """After the running ones: a request that was just taken out may still be in the last batch."""
        running_count = len(scheduler.running_batch.reqs) if scheduler.running_batch is not None else 0
        has_slot = running_count < scheduler.max_running_requests
        lack = Reason.WAITING_MEMORY if has_slot else Reason.WAITING_CAPACITY
        for req in scheduler.waiting_queue:
            entry = self._tracker.requests.get(req.rid) or self._tracker.see(req, now_s)
            if entry is None:
                continue
            entry.last_seen_s = now_s
            stream = entry.stream
            if not req.output_ids:
                stream.state, stream.reason, stream.kv_device_tokens = RequestState.WAITING, lack, 0
            elif stream.state is not RequestState.PREEMPTED:
                # Not by us: the only cause that stock SGLang has for taking a stream out of the batch.
                self._retracted.append(entry)
                self._tracker.counters.add_preemption(stream.class_name, Reason.PREEMPTED_KV_FULL)
                stream.state, stream.reason = RequestState.PREEMPTED, Reason.PREEMPTED_KV_FULL
                entry.paused_since_s = now_s
                stream.preemption_count = req.retraction_count
                stream.kv_device_tokens = 0

    def _is_gone(self, entry: TrackedRequest, now_s: float) -> bool:
        unseen_s = now_s - entry.last_seen_s
        was_told = entry.req.finished_reason is not None or (entry.is_closed and unseen_s > 0.5)
        return was_told or unseen_s > VANISHED_AFTER_S

    def streams(self, now_s: float) -> list[StreamState]:
        """The live streams, then those that ended in the last seconds. The live objects themselves, not copies."""
        tracker = self._tracker
        if tracker.ended:
            tracker.forget_old(now_s)
        return [entry.stream for group in (tracker.requests, tracker.ended) for entry in group.values()]

    def quality(self, now_s: float) -> Quality:
        """Sums and tails; live streams' stalls are added by the reader of the telemetry (`tokenflow.rows`)."""
        tracker = self._tracker
        if tracker.new_ttfts_s:
            self._ttfts_s.extend(tracker.new_ttfts_s)
            tracker.new_ttfts_s.clear()
            self._ttft_tail = tail_of(self._ttfts_s)
        live_preemption_count = sum(
            entry.stream.preemption_count - entry.earlier_preemption_count for entry in tracker.requests.values()
        )
        raw_tok_s, effective_tok_s = self._rates_tok_s(now_s)
        return Quality(
            ttft_s=self._ttft_tail,
            stall_s_total=tracker.totals.ended_stall_s,
            raw_tok_s=raw_tok_s,
            effective_tok_s=effective_tok_s,
            preemption_total=tracker.totals.ended_preemption_count + live_preemption_count,
            zombie_tokens_total=tracker.totals.zombie_tokens,
        )

    def add_delivery(self, latency: Latency) -> Latency:
        """The way of first tokens from the scheduler to their clients: a busy HTTP process is told from a busy GPU."""
        new_s = self._tracker.new_ways_s
        if new_s:
            self._ways_s.extend(new_s)
            new_s.clear()
            front_end_s, delivery_s = zip(*self._ways_s, strict=True)
            self._way_tails = (tail_of(front_end_s), tail_of(delivery_s))
        latency.front_end_s, latency.delivery_s = self._way_tails
        return latency

    def _rates_tok_s(self, now_s: float) -> tuple[float, float]:
        """Tokens made, and delivered ones by their weights, per second of the last few."""
        totals = self._tracker.totals
        self._made.append((now_s, totals.generated_tokens, totals.effective_tokens))
        while len(self._made) > 2 and now_s - self._made[1][0] >= RAW_RATE_WINDOW_S:
            self._made.popleft()
        (first_s, first_raw, first_effective), (last_s, last_raw, last_effective) = self._made[0], self._made[-1]
        span_s = last_s - first_s
        if span_s <= 0.0:
            return 0.0, 0.0
        return (last_raw - first_raw) / span_s, (last_effective - first_effective) / span_s


def tail_of(samples: Sequence[float]) -> Tail:
    """Median and 99th percentile by nearest rank."""
    if not samples:
        return Tail()
    ordered = sorted(samples)
    p99_index = min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)
    return Tail(p50=ordered[(len(ordered) - 1) // 2], p99=ordered[p99_index], count=len(ordered))
