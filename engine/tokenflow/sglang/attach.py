"""Binds the plugin to the scheduler of one rank, when its loop begins."""

import logging
from pathlib import Path
from typing import Any

from tokenflow.policy.states import Mode
from tokenflow.sglang import compat
from tokenflow.sglang.actuator import Actuator
from tokenflow.sglang.directive import Directive
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.governor import Governor
from tokenflow.sglang.observer import Place, SchedulerObserver
from tokenflow.sglang.rank_exchange import RankExchange, digest_of
from tokenflow.sglang.settings import PluginSettings
from tokenflow.sglang.start_over import start_over

logger = logging.getLogger(__name__)
RANK_SKEW = "rank_skew"


class Rank:
    """One rank's parts. `observer`, and with it the governor, is on rank 0 only."""

    def __init__(
        self, scheduler: Any, actuator: Actuator, exchange: RankExchange, observer: SchedulerObserver | None
    ) -> None:
        self._scheduler = scheduler
        self.actuator = actuator
        self.exchange = exchange
        self.observer = observer
        self.has_failed = False  # something of ours broke off here since the ranks last compared themselves

    def decide(self, now_s: float) -> Directive | None:
        """Rank 0 only."""
        assert self.observer is not None
        return self.observer.governor.decide(now_s)

    def off(self) -> Directive:
        """The last directive of a plugin that has turned itself off."""
        return Directive(0, Mode.OFF)

    def note(self, now_s: float) -> None:
        """Rank 0 writes down what the last directive has done."""
        if self.observer is not None:
            self.observer.governor.note(self.actuator.paused, now_s)

    def is_held(self, rid: str) -> bool:
        """Whether an operator holds that request. Rank 0 knows."""
        return self.observer is not None and self.observer.governor.is_held(rid)

    def note_resumed(self, now_s: float) -> None:
        """Rank 0 writes down whom the last admission has brought back."""
        if self.observer is not None and self.actuator.resumed:
            self.observer.governor.note_resumed(now_s)

    def note_released(self) -> None:
        """Rank 0 writes down what has left the device."""
        if self.observer is not None:
            self.observer.governor.note_released()

    def end_turn(self) -> None:
        """SGLang goes on: it receives requests, or chooses its batch."""
        if self.observer is not None:
            self.observer.governor.end_turn()

    def close(self) -> None:
        """Before the loop has begun: the other ranks are not attached."""
        if self.observer is not None:
            self.observer.close()

    def is_skewed(self, directive: Directive) -> bool:
        """Whether the ranks have come to differ, or one of them has failed: the same answer on all of them."""
        if not self.exchange.is_checked(directive):
            return False
        has_failed, self.has_failed = self.has_failed, False
        return not self.exchange.agree(digest_of(self._scheduler), has_failed)

    def start_over(self, last_batch: Any) -> None:
        """On all ranks alike, after which none of them enforces any more."""
        self.actuator.stop(Mode.OBSERVE)
        start_over(self._scheduler, last_batch, self.actuator)
        if self.observer is not None:
            self.observer.governor.stop_enforcing(RANK_SKEW)


def attach(scheduler: Any, folder: Path, settings: PluginSettings, guard: FaultGuard) -> Rank | None:
    """None where this scheduler is left alone. With several ranks either all of them are attached or none."""
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    if (parallel.dp_rank or 0) >= watched_count():
        return None
    count = int(parallel.tp_size) if can_follow() else 1
    if parallel.pp_rank != 0 or parallel.tp_rank >= count:
        return None
    exchange = RankExchange(int(parallel.tp_rank), count, parallel.tp_group.cpu_group if count > 1 else None)
    rank = None
    try:
        rank = _build(scheduler, folder, settings, guard, exchange)
    finally:
        if not exchange.agree(0, rank is None) and rank is not None:
            rank.close()
            rank = None
            logger.warning("tokenflow: the schedulers are left alone: one of the ranks could not be attached")
    return rank


def watched_count() -> int:
    """How many schedulers have a link: every replica (`--dp-size`) of an engine on one host, else the first alone.

    With data-parallel attention the schedulers step together, and the other hosts' have no way to our folder.
    """
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    return int(parallel.num_dp_ranks) if can_follow() else 1


def place() -> Place:
    """This scheduler among those of the engine that have requests of their own."""
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    return Place(int(parallel.dp_rank or 0), int(parallel.num_dp_ranks), watched_count())


def can_follow() -> bool:
    """Whether the other tensor-parallel ranks are processes of this host, which all run the plugin if one does."""
    from sglang.srt.runtime_context import get_parallel, get_server_args

    return not get_parallel().attn_dp_enabled and get_server_args().nnodes == 1


def _build(
    scheduler: Any, folder: Path, settings: PluginSettings, guard: FaultGuard, exchange: RankExchange
) -> Rank | None:
    problem = compat.find_missing_attributes(scheduler)
    unhooked = compat.find_unhooked(compat.SCHEDULER_TARGETS + compat.ACTUATOR_TARGETS)
    if problem is None and unhooked:
        problem = f"no hook is in place on {', '.join(unhooked)}"
    if problem is not None:
        logger.warning("tokenflow: the scheduler is left alone: %s", problem)
        return None
    actuator = Actuator(scheduler)
    if exchange.rank > 0:
        return Rank(scheduler, actuator, exchange, None)
    governor = Governor(scheduler, settings, actuator)
    observer = SchedulerObserver(scheduler, folder, guard, governor, place())
    return Rank(scheduler, actuator, exchange, observer)
