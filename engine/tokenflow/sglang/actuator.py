"""Carries a directive out inside the scheduler's loop, with SGLang's own means, on every rank alike.

A pause is SGLang's retraction with `checkpoint=True`: the KV goes into the radix tree (and from there, by HiCache's
write-through, to the host pool) instead of being thrown away, the row is released, and the request goes back to the
waiting queue, where aborts and idle checks find it. A resume is an ordinary admission: the prefix match finds the KV
on the device, or HiCache loads it back from the host, and at least one token is computed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tokenflow.policy.ledger import GROWTH_TOKENS
from tokenflow.policy.states import Mode
from tokenflow.sglang import penalties
from tokenflow.sglang.directive import Directive, WriteUpTo
from tokenflow.sglang.kept_kv import KeptKv


@dataclass(slots=True)
class HeldBack:
    """What `narrow` has put aside, for `widen` to put back."""

    others: list[Any]
    chosen: list[Any]
    usual_growth_tokens: int


class Actuator:
    """Bound to the scheduler of one rank. Runs on its thread.

    It knows the directive and the scheduler only. `paused` and `resumed` are the requests that the last directive
    took out and that the last admission brought back.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self.kept = KeptKv(scheduler)
        self._directive: Directive | None = None
        self._held: HeldBack | None = None
        self._retraction_order: tuple[str, ...] = ()
        self._recomputes: frozenset[str] = frozenset()
        self.mode = Mode.OBSERVE
        self.paused: list[Any] = []
        self.resumed: list[Any] = []
        self.pause_count = 0
        self._is_pausing = False

    @property
    def is_enforcing(self) -> bool:
        return self.mode is Mode.ENFORCE

    def carry_out(self, directive: Directive) -> None:
        """Pauses, releases and writes now; the starts are handed out when SGLang next builds a prefill batch."""
        self.paused = []
        if directive.mode is not Mode.ENFORCE:
            self.stop(directive.mode)
            return
        self.mode = directive.mode
        self._retraction_order = directive.retraction_order
        if directive.pauses:
            self.drain()
            self._pause(directive.pauses)
        for release in directive.releases:
            self.kept.ask_release(release)
        self._write(directive.writes)
        if directive.pauses or directive.writes or self.kept.take_writes():
            self._scheduler.tree_cache.flush_pending_backups()
        self._directive = directive

    def stop(self, mode: Mode) -> None:
        """No orders hold any more: stock scheduling goes on. Paused streams come back: they are in the queue."""
        self.mode = mode
        self.forget()
        self._retraction_order = ()
        self.kept.clear()

    def forget(self) -> None:
        """The last directive's starts hold for one turn."""
        self._directive = None
        self._recomputes = frozenset()

    def settle(self) -> None:
        """Once a turn, before the next batch is chosen: paused streams that resumed or ended are let go."""
        if len(self.kept):
            self.kept.settle(self._scheduler.waiting_queue)
            if self.kept.take_writes():
                self._scheduler.tree_cache.flush_pending_backups()

    def drain(self) -> None:
        """Processes the step in flight, so that no token of a victim is lost.

        The overlap loop would take its result after the next launch; `last_batch` None tells it that this is done.
        The batch itself is still merged: SGLang's loop has already passed it on. Without overlap nothing is in flight.
        """
        scheduler = self._scheduler
        queue = getattr(scheduler, "result_queue", None)
        if not queue:
            return
        while queue:
            batch, result = queue.popleft()
            scheduler.process_batch_result(batch, result)
        scheduler.last_batch = None

    @property
    def is_narrowed(self) -> bool:
        """Whether requests are put aside: during SGLang's admission, and after it if `widen` could not be reached."""
        return self._held is not None

    def narrow(self, running_batch: Any) -> None:
        """Before SGLang's admission: it sees only those who are to start, in order; without a directive, everybody.

        It also guesses less growth for every request: stock SGLang cannot take a stream out without losing its KV,
        so it keeps room for up to 4096 tokens each. Here the policy keeps the room that is needed.
        """
        from sglang.srt.managers import schedule_policy

        self.resumed = []
        directive = self._directive
        if directive is None:
            return
        waiting = self._scheduler.waiting_queue
        order = {rid: number for number, rid in enumerate(directive.starts)}
        known = set(directive.held_back)
        chosen = sorted((req for req in waiting if req.rid in order), key=lambda req: order[req.rid])
        unknown = [req for req in waiting if req.rid not in order and req.rid not in known]
        others = [req for req in waiting if req.rid not in order and req.rid in known]
        held = HeldBack(others, chosen, schedule_policy.CLIP_MAX_NEW_TOKENS)
        # Nothing was changed up to here, and nothing fails from here on.
        self._directive, self._recomputes = None, frozenset(directive.recomputes)
        self._held = held
        self._scheduler.waiting_queue = chosen + unknown
        schedule_policy.CLIP_MAX_NEW_TOKENS = min(GROWTH_TOKENS, held.usual_growth_tokens)
        if chosen:
            running_batch.batch_is_full = False

    def widen(self) -> None:
        """After SGLang's admission, whatever came of it: nobody is lost from the queue."""
        held, self._held = self._held, None
        if held is None:
            return
        from sglang.srt.managers import schedule_policy

        schedule_policy.CLIP_MAX_NEW_TOKENS = held.usual_growth_tokens
        left = self._scheduler.waiting_queue
        self._scheduler.waiting_queue = left + held.others
        self._recomputes = frozenset()
        waiting = {id(req) for req in left}
        self.resumed = [req for req in held.chosen if id(req) not in waiting and req.output_ids]

    def is_recomputed(self, rid: str) -> bool:
        """Whether the host copy of a request that is being admitted is not to be loaded."""
        return rid in self._recomputes

    def retraction_order(self, order: list[int], reqs: list[Any]) -> list[int]:
        """SGLang pops from the end. Whoever the directive does not name is kept, in SGLang's order."""
        place = {rid: number for number, rid in enumerate(self._retraction_order)}
        return sorted(order, key=lambda index: place.get(reqs[index].rid, -1))

    def keeps_kv(self, req: Any) -> bool:
        """Whether the KV of a request that SGLang takes out is worth keeping: it is to come back, and not because the
        weights are about to change."""
        is_to_return = req.finished_reason is None and req.to_finish is None and not req.skip_radix_cache_insert
        return is_to_return and not self._scheduler._engine_paused

    def make_room(self) -> None:
        """After SGLang has taken a stream out by itself, since the pool is full: a copy under way would keep its pages
        locked, nothing would have become free, and SGLang would take out the next one and at last end one."""
        tree = self._scheduler.tree_cache
        if not self._is_pausing and getattr(tree, "cache_controller", None) is not None and tree.ongoing_write_through:
            tree.writing_check(write_back=True)

    def restore_penalties(self, batch: Any) -> None:
        """For those of a new prefill batch who come back."""
        penalties.restore(batch, bool(self._scheduler.enable_overlap))

    def requeue(self, req: Any) -> None:
        """Back into the queue without the limits of new requests: a paused stream is never turned away."""
        self._scheduler.waiting_queue.append(req)
        self._stamp(req)

    def _stamp(self, req: Any) -> None:
        """What SGLang notes when it queues a request."""
        req.time_stats.set_wait_queue_entry_time()
        req.arrival_processed_tokens = self._scheduler.processed_tokens_counter

    def _pause(self, rids: Iterable[str]) -> None:
        batch = self._scheduler.running_batch
        named = set(rids)
        victims = [
            (index, req)
            for index, req in enumerate(batch.reqs)
            if req.rid in named and req.finished_reason is None and req.kv.holds_kv
        ]
        self._is_pausing = True
        try:
            for index, _ in victims:
                batch.release_req(index, 0)
        finally:
            self._is_pausing = False
            # Whatever fails above: a request whose row is released must leave the batch and be in the queue.
            released = [req for _, req in victims if not req.kv.holds_kv]
            if released:
                gone = {id(req) for req in released}
                batch.filter_batch(keep_indices=[i for i, req in enumerate(batch.reqs) if id(req) not in gone])
                batch.batch_is_full = False
                self._scheduler.waiting_queue.extend(released)
                for req in released:
                    if req.last_node is not None:  # the release broke off after the row was given back
                        req.reset_for_retract()
                    self._stamp(req)
                    self.paused.append(req)
                    self.pause_count += 1

    def _write(self, writes: Iterable[WriteUpTo]) -> None:
        """Moves KV of running streams into the tree, from where HiCache writes it through to the host."""
        scheduler = self._scheduler
        reqs = {req.rid: req for req in scheduler.running_batch.reqs} if scheduler.running_batch else {}
        page = scheduler.page_size
        for write in writes:
            req = reqs.get(write.rid)
            if req is None or req.finished_reason is not None or not req.kv.holds_kv:
                continue
            up_to = min(write.up_to_tokens, req.owned_kv_len()) // page * page
            if up_to > req.kv.cache_protected_len:
                req.refresh_fill_ids()
                scheduler.tree_cache.checkpoint(req, up_to=up_to)
