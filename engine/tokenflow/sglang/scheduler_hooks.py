"""Hooks on SGLang's scheduler. Thin: they find the observer and hand over, guarded."""

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenflow.sglang import compat
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.governor import Governor
from tokenflow.sglang.observer import SchedulerObserver
from tokenflow.sglang.settings import PluginSettings

logger = logging.getLogger(__name__)


class SchedulerHooks:
    """Attaches one observer to the scheduler of rank 0 when its loop begins; does nothing on other ranks."""

    def __init__(self, folder: Path, settings: PluginSettings) -> None:
        self._folder = folder
        self._settings = settings
        self.guard = FaultGuard()
        self._observer: SchedulerObserver | None = None

    def before_run_loop(self, scheduler: Any) -> None:
        """BEFORE run_event_loop."""
        try:
            self._observer = self._attach(scheduler)
        except Exception as error:  # noqa: BLE001 - fail open: the engine serves without us
            self.guard.record("attach", error)

    def before_next_batch(self, *args: Any, **kwargs: Any) -> None:
        """BEFORE get_next_batch_to_run."""
        observer = self._observer
        if observer is None:
            return
        if self.guard.is_tripped:
            with contextlib.suppress(Exception):
                observer.on_loop_disabled()
            return
        begin_s = time.perf_counter()
        try:
            observer.on_loop()
        except Exception as error:  # noqa: BLE001 - fail open
            self.guard.record("on_loop", error)
        observer.spent_s += time.perf_counter() - begin_s

    def after_step(self, outcome: Any, scheduler: Any, batch: Any, result: Any) -> None:
        """AFTER process_batch_result."""
        observer = self._observer
        if observer is None or self.guard.is_tripped:
            return
        begin_s = time.perf_counter()
        try:
            observer.on_step(batch)
        except Exception as error:  # noqa: BLE001 - fail open
            self.guard.record("on_step", error)
        observer.spent_s += time.perf_counter() - begin_s

    def around_admission(self, original: Callable[..., Any], scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        """AROUND _get_new_batch_prefill_raw: while enforcing, only whom the plan starts is seen, in its order."""
        observer = self._observer
        if observer is None or not observer.governor.is_enforcing:
            return original(scheduler, *args, **kwargs)
        return observer.governor.actuator.admit(original, *args, **kwargs)

    def around_release(self, original: Callable[..., Any], req: Any, tree_cache: Any, *, checkpoint: bool) -> Any:
        """AROUND release_kv_cache: a stream that is taken out keeps its KV, whoever takes it out."""
        observer = self._observer
        if observer is not None and observer.governor.is_enforcing and not checkpoint:
            checkpoint = observer.governor.keeps_kv(req)
        return original(req, tree_cache, checkpoint=checkpoint)

    def around_retraction_order(self, original: Callable[..., list[int]], reqs: list[Any]) -> list[int]:
        """AROUND _get_decode_retraction_order: with KV full the stream with the longest runway goes first."""
        order = original(reqs)
        observer = self._observer
        if observer is None or not observer.governor.is_enforcing:
            return order
        try:
            return observer.governor.retraction_order(order, reqs)
        except Exception as error:  # noqa: BLE001 - fail open: stock order
            self.guard.record("retraction_order", error)
            return order

    def around_queue_limit(self, original: Callable[..., bool], scheduler: Any, recv_req: Any) -> bool:
        """AROUND _abort_on_queued_limit: the limit is for new requests, not for streams that were taken out."""
        observer = self._observer
        if observer is not None and observer.governor.is_enforcing and recv_req.output_ids:
            return False
        return original(scheduler, recv_req)

    def _attach(self, scheduler: Any) -> SchedulerObserver | None:
        if not _is_rank_zero(scheduler):
            return None
        problem = compat.find_missing_attributes(scheduler)
        unhooked = compat.find_unhooked(compat.SCHEDULER_TARGETS + compat.ACTUATOR_TARGETS)
        if problem is None and unhooked:
            problem = f"no hook is in place on {', '.join(unhooked)}"
        if problem is not None:
            logger.warning("tokenflow: the scheduler is left alone: %s", problem)
            return None
        governor = Governor(scheduler, self._settings)
        return SchedulerObserver(scheduler, self._folder, self._settings, self.guard, governor)


def _is_rank_zero(scheduler: Any) -> bool:
    """The one scheduler that receives requests: the others follow its broadcasts."""
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    return bool(parallel.tp_rank == 0 and parallel.pp_rank == 0)
