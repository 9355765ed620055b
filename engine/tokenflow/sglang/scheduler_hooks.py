"""Hooks on SGLang's scheduler. Thin: each hands over to this rank's parts, guarded.

A fault of ours neither skips nor repeats what SGLang does: its own call stands outside of every guard.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tokenflow.sglang.attach import Rank, attach
from tokenflow.sglang.directive import Directive
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.settings import PluginSettings
from tokenflow.sglang.timeouts import TimeLimits

logger = logging.getLogger(__name__)


class RankSkewError(RuntimeError):
    """The ranks no longer held the same. They have started over, and none of them enforces any more."""


class SchedulerHooks:
    """One scheduler's hooks. On every rank they carry out; on rank 0 they also observe and decide."""

    def __init__(self, folder: Path, settings: PluginSettings) -> None:
        self._folder = folder
        self._settings = settings
        self.guard = FaultGuard()
        self._rank: Rank | None = None
        self._limits = TimeLimits()

    def before_run_loop(self, scheduler: Any) -> None:
        """BEFORE run_event_loop."""
        with self._guarded("attach"):
            self._rank = attach(scheduler, self._folder, self._settings, self.guard)

    def around_receive(self, original: Callable[..., Any], receiver: Any, local_reqs: Any = None) -> Any:
        """AROUND recv_requests: with several ranks, this is where rank 0 decides and all of them hear of it."""
        rank = self._rank
        if rank is None or rank.exchange.is_alone:
            return original(receiver, local_reqs=local_reqs)
        directive = self._decide(rank) if rank.observer is not None else None
        rank.end_turn()
        return rank.exchange.receive(
            lambda local: original(receiver, local_reqs=local), list(local_reqs or []), directive
        )

    def before_next_batch(self, scheduler: Any, running_batch: Any = None, last_batch: Any = None) -> Any:
        """BEFORE get_next_batch_to_run. What it returns takes the place of the arguments; None leaves them."""
        rank, arguments = self._rank, None
        if rank is None:
            return None
        begin_s = time.perf_counter()
        if rank.actuator.is_narrowed:  # a fault kept the last admission from putting the others back
            with self._acting(rank, "admission"):
                rank.actuator.widen()
        self._observe(rank)
        directive = self._decide(rank) if rank.exchange.is_alone else rank.exchange.take()
        rank.actuator.forget()
        if directive is not None and not self._carry_out(rank, directive):
            self._start_over(rank, directive, last_batch)
            arguments = ((scheduler,), {"running_batch": running_batch, "last_batch": None})
        with self._acting(rank, "settle"):
            rank.actuator.settle()
        with self._guarded("note"):
            rank.note_released()
        with self._guarded("end_turn"):
            rank.end_turn()
        if rank.observer is not None:
            rank.observer.spent_s += time.perf_counter() - begin_s
        return arguments

    def after_step(self, outcome: Any, scheduler: Any, batch: Any, result: Any) -> None:
        """AFTER process_batch_result."""
        rank = self._rank
        if rank is None or rank.observer is None or self.guard.is_tripped:
            return
        begin_s = time.perf_counter()
        with self._guarded("on_step"):
            rank.observer.on_step(batch)
        rank.observer.spent_s += time.perf_counter() - begin_s

    def around_admission(self, original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        """AROUND _get_new_batch_prefill_raw: while enforcing, only whom the plan starts is seen, in its order."""
        rank = self._rank
        if rank is None:
            return original(scheduler, *args, **kwargs)
        if not rank.actuator.is_enforcing:
            return self._with_penalties(rank, original(scheduler, *args, **kwargs))
        with self._acting(rank, "admission"):
            rank.actuator.narrow(kwargs["running_batch"] if "running_batch" in kwargs else args[-1])
        try:
            return self._with_penalties(rank, original(scheduler, *args, **kwargs))
        finally:
            was_narrowed = rank.actuator.is_narrowed
            with self._acting(rank, "admission"):
                rank.actuator.widen()
            if was_narrowed:
                with self._guarded("note"):
                    rank.note_resumed(time.monotonic())

    def _with_penalties(self, rank: Rank, outcome: Any) -> Any:
        """`outcome` of an admission, whose first is the new batch or None. Streams that were paused while enforcing may
        come back after it."""
        with self._acting(rank, "penalties"):
            batch, _ = outcome
            if batch is not None:
                rank.actuator.restore_penalties(batch)
        return outcome

    def around_load_back(self, original: Callable[..., Any], tree: Any, params: Any) -> Any:
        """AROUND init_load_back: what is cheaper to recompute is not loaded, as if the load had been declined."""
        rank, is_declined = self._rank, False
        if rank is not None and rank.actuator.is_enforcing:
            with self._acting(rank, "load_back"):
                is_declined = params.req is not None and rank.actuator.is_recomputed(params.req.rid)
        return (0, params.req.last_node) if is_declined else original(tree, params)

    def around_release(self, original: Callable[..., Any], req: Any, tree_cache: Any, *, checkpoint: bool) -> Any:
        """AROUND release_kv_cache: a stream that is taken out keeps its KV, whoever takes it out."""
        rank, is_kept = self._rank, False
        if rank is not None and rank.actuator.is_enforcing and not checkpoint:
            with self._acting(rank, "release"):
                is_kept = rank.actuator.keeps_kv(req)
        outcome = original(req, tree_cache, checkpoint=checkpoint or is_kept)
        if rank is not None and is_kept:
            with self._acting(rank, "release"):
                rank.actuator.kept.keep(req)
                rank.actuator.make_room()
        return outcome

    def around_retraction_order(self, original: Callable[..., list[int]], reqs: list[Any]) -> list[int]:
        """AROUND _get_decode_retraction_order: with KV full whoever the policy would pause first goes first."""
        order = original(reqs)
        rank = self._rank
        if rank is not None and rank.actuator.is_enforcing:
            with self._acting(rank, "retraction_order"):
                order = rank.actuator.retraction_order(order, reqs)
        return order

    def around_queue_limit(self, original: Callable[..., bool], scheduler: Any, recv_req: Any) -> bool:
        """AROUND _abort_on_queued_limit: the limit is for new requests, not for streams that were taken out."""
        rank, started = self._rank, set[int]()
        whole = scheduler.waiting_queue
        if rank is not None and rank.actuator.is_enforcing:
            with self._acting(rank, "queue_limit"):
                if recv_req.output_ids:
                    return False
                started = {id(req) for req in whole if req.output_ids}
        if not started:
            return original(scheduler, recv_req)
        # Paused streams are not in its way, and with priorities it must not find them to turn away.
        scheduler.waiting_queue = [req for req in whole if id(req) not in started]
        try:
            return original(scheduler, recv_req)
        finally:
            left = {id(req) for req in scheduler.waiting_queue} | started
            scheduler.waiting_queue = [req for req in whole if id(req) in left]

    def around_timeouts(self, original: Callable[..., list[Any]], scheduler: Any) -> list[Any]:
        """AROUND _poll_timeout_aborts, on rank 0: a pause of ours counts neither as waiting nor as running."""
        aborts = original(scheduler)
        rank = self._rank
        if rank is not None:
            with self._guarded("timeouts"):
                is_enforcing = rank.actuator.is_enforcing
                aborts = self._limits.due(aborts, scheduler, rank.is_held, is_enforcing=is_enforcing)
        return aborts

    def _observe(self, rank: Rank) -> None:
        observer = rank.observer
        if observer is None:
            return
        if self.guard.is_tripped:
            with contextlib.suppress(Exception):
                observer.on_loop_disabled()
            return
        with self._guarded("on_loop"):
            observer.on_loop()

    def _decide(self, rank: Rank) -> Directive | None:
        """On rank 0. A plugin that has turned itself off leaves no rank behind that still enforces."""
        if self.guard.is_tripped:
            return rank.off() if rank.actuator.is_enforcing else None
        try:
            return rank.decide(time.monotonic())
        except Exception as error:  # noqa: BLE001 - fail open: nothing is decided, and stock scheduling goes on
            self.guard.record("decide", error)
            return None

    def _carry_out(self, rank: Rank, directive: Directive) -> bool:
        """False: the ranks have come to differ. Each of them must reach the comparison, whatever failed before."""
        with self._acting(rank, "carry_out"):
            rank.actuator.carry_out(directive)
        with self._guarded("note"):
            rank.note(time.monotonic())
        is_skewed = False
        with self._guarded("compare"):
            is_skewed = rank.is_skewed(directive)
        return not is_skewed

    def _start_over(self, rank: Rank, directive: Directive, last_batch: Any) -> None:
        self.guard.record(
            "rank_skew", RankSkewError(f"after directive {directive.sequence} the ranks differ, or one of them failed")
        )
        with self._guarded("start_over"):
            rank.start_over(last_batch)

    @contextlib.contextmanager
    def _acting(self, rank: Rank, where: str) -> Iterator[None]:
        """As `_guarded`, where a fault may leave this rank different from the others."""
        with self._guarded(where):
            try:
                yield
            except Exception:
                rank.has_failed = True
                raise

    @contextlib.contextmanager
    def _guarded(self, where: str) -> Iterator[None]:
        """Fail open: what our own code raises is counted and goes no further."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.guard.record(where, error)
