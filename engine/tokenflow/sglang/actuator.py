"""Carries a plan out inside the scheduler's loop, with SGLang's own means.

A pause is SGLang's retraction with `checkpoint=True`: the KV goes into the radix tree (and from there, by HiCache's
write-through, to the host pool) instead of being thrown away, the row is released, and the request goes back to the
waiting queue, where aborts and idle checks find it. A resume is an ordinary admission: the prefix match finds the KV
on the device, or HiCache loads it back from the host, and at least one token is computed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tokenflow.policy.ledger import GROWTH_TOKENS
from tokenflow.policy.plan import Decision, Plan, Write
from tokenflow.policy.states import RequestState
from tokenflow.sglang.tracker import RequestTracker


class Actuator:
    """Bound to the scheduler of one rank. Runs on its thread."""

    def __init__(self, scheduler: Any, tracker: RequestTracker) -> None:
        self._scheduler = scheduler
        self._tracker = tracker
        self._starts: list[str] = []
        self._is_planned = False
        self.pause_count = 0

    def carry_out(self, plan: Plan) -> None:
        """Pauses and writes now; the starts are handed out when SGLang next builds a prefill batch."""
        if plan.pauses:
            self.drain()
            self._pause(plan.pauses)
        self._write(plan.writes)
        if plan.pauses or plan.writes:
            self._scheduler.tree_cache.flush_pending_backups()
        self._starts = [decision.rid for decision in plan.starts]
        self._is_planned = True

    def forget(self) -> None:
        """No plan holds any more: stock admission goes on."""
        self._starts, self._is_planned = [], False

    def drain(self) -> None:
        """Processes the step in flight, so that no token of a victim is lost.

        The overlap loop would take its result after the next launch; `last_batch` None tells it that this is done.
        """
        scheduler = self._scheduler
        queue = getattr(scheduler, "result_queue", None)
        if not queue:
            return
        while queue:
            batch, result = queue.popleft()
            scheduler.process_batch_result(batch, result)
        scheduler.last_batch = None

    def admit(self, admission: Callable[..., Any], running_batch: Any, *args: Any, **kwargs: Any) -> Any:
        """AROUND SGLang's admission: it sees only those who are to start, in the plan's order."""
        scheduler = self._scheduler
        if not self._is_planned:
            return admission(scheduler, *args, running_batch=running_batch, **kwargs)
        order = {rid: number for number, rid in enumerate(self._starts)}
        chosen = [req for req in scheduler.waiting_queue if req.rid in order]
        chosen.sort(key=lambda req: order[req.rid])
        others = [req for req in scheduler.waiting_queue if req.rid not in order]
        known = self._tracker.requests
        unknown = [req for req in others if req.rid not in known]
        held_back = [req for req in others if req.rid in known]
        self.forget()
        scheduler.waiting_queue = chosen + unknown
        if chosen:
            running_batch.batch_is_full = False
        try:
            with _growth_estimate(GROWTH_TOKENS):
                return admission(scheduler, *args, running_batch=running_batch, **kwargs)
        finally:
            scheduler.waiting_queue = scheduler.waiting_queue + held_back

    def _pause(self, pauses: Iterable[Decision]) -> None:
        batch = self._scheduler.running_batch
        victims = {decision.rid: decision for decision in pauses}
        released: list[Any] = []
        try:
            for index, req in enumerate(batch.reqs):
                if req.rid in victims and req.finished_reason is None and req.kv.holds_kv:
                    batch.release_req(index, 0)
                    released.append(req)
        finally:
            # Whatever fails above: a request whose row is released must leave the batch and be in the queue.
            if released:
                gone = {id(req) for req in released}
                batch.filter_batch(keep_indices=[i for i, req in enumerate(batch.reqs) if id(req) not in gone])
                batch.batch_is_full = False
                for req in released:
                    self._requeue(req)
                    self._note_pause(req, victims[req.rid])

    def _note_pause(self, req: Any, decision: Decision) -> None:
        self.pause_count += 1
        entry = self._tracker.requests.get(req.rid)
        if entry is not None:
            entry.stream.state = RequestState.PREEMPTED
            entry.stream.reason = decision.reason
            entry.stream.preemption_count = req.retraction_count

    def _requeue(self, req: Any) -> None:
        """Back into the queue without the limits of new requests: a paused stream is never turned away."""
        req.time_stats.set_wait_queue_entry_time()
        req.arrival_processed_tokens = self._scheduler.processed_tokens_counter
        self._scheduler.waiting_queue.append(req)

    def _write(self, writes: Iterable[Write]) -> None:
        """Moves KV of running streams into the tree, from where HiCache writes it through to the host."""
        scheduler = self._scheduler
        reqs = {req.rid: req for req in scheduler.running_batch.reqs} if scheduler.running_batch else {}
        for write in writes:
            req = reqs.get(write.rid)
            if req is None or req.finished_reason is not None or not req.kv.holds_kv:
                continue
            page = scheduler.page_size
            up_to = min(req.kv.cache_protected_len + write.tokens, req.owned_kv_len()) // page * page
            if up_to > req.kv.cache_protected_len:
                req.refresh_fill_ids()
                scheduler.tree_cache.checkpoint(req, up_to=up_to)


@contextmanager
def _growth_estimate(tokens: int) -> Iterator[None]:
    """Lowers SGLang's guess of how much every request will still grow while it admits whom the plan chose.

    Stock SGLang cannot take a stream out without losing its KV, so it keeps room for up to 4096 tokens each. Here the
    policy keeps the room that is needed, and a stream that must leave loses nothing.
    """
    from sglang.srt.managers import schedule_policy

    usual = schedule_policy.CLIP_MAX_NEW_TOKENS
    schedule_policy.CLIP_MAX_NEW_TOKENS = min(tokens, usual)
    try:
        yield
    finally:
        schedule_policy.CLIP_MAX_NEW_TOKENS = usual
