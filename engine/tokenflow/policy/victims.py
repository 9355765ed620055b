"""Who among the running could make room, in which order, and on which terms."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.costs import departures
from tokenflow.policy.ledger import droppable_tokens, freed_tokens, unwritten_tokens
from tokenflow.policy.plan import Action
from tokenflow.policy.safety import required_runway_s
from tokenflow.policy.turn import Turn
from tokenflow.policy.urgency import runways
from tokenflow.policy.view import View

Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]

_EPSILON_S = 1e-9


@dataclass(slots=True)
class Departure:
    """How one victim would leave: what becomes of its KV, what it costs, what it frees."""

    action: Action
    evict_s: float
    load_s: float
    freed_tokens: float
    written_tokens: float


@dataclass(slots=True)
class Victims:
    """Candidates in order, as plain lists: the pairing loop looks at few of them, one at a time."""

    turn: Turn
    rows: list[int]
    runways_s: list[float]
    is_beyond: list[bool]
    is_excess: list[bool]
    is_used: list[bool] = field(default_factory=list)
    _away: tuple[list[float], list[float], list[bool], list[float], list[float]] | None = None
    _kept: list[float] | None = None

    def departure(self, index: int, frees_pages: bool) -> Departure:
        """A pause for a slot alone leaves the KV where it is; one for pages sends it away."""
        if not frees_pages:
            if self._kept is None:
                self._kept = droppable_tokens(self.turn.view, np.array(self.rows, np.intp)).tolist()
            return Departure(Action.PAUSE_KEEP, 0.0, 0.0, self._kept[index], 0.0)
        if self._away is None:
            self._away = self._price()
        evict_s, load_s, is_write, freed, unwritten = (column[index] for column in self._away)
        if is_write and unwritten <= self.turn.ledger.host_free_tokens:
            return Departure(Action.PAUSE_OFFLOAD, evict_s, load_s, freed, unwritten)
        if is_write:  # the host filled up within this decision
            costs = self.turn.view.engine.costs
            context = float(self.turn.view.context_tokens[self.rows[index]])
            load_s = costs.prefill_fixed_s + context * costs.prefill_s_per_token
        return Departure(Action.PAUSE_DROP, 0.0, load_s, freed, 0.0)

    def required_s(self, leaving: Departure, *, hold_s: float, prefill_s: float, surplus_s: float) -> float:
        tunables = self.turn.tunables
        return required_runway_s(
            evict_s=leaving.evict_s,
            load_s=leaving.load_s,
            schedule_s=self.turn.view.engine.costs.schedule_s,
            safety_factor=tunables.safety_factor,
            hold_s=hold_s,
            prefill_s=prefill_s,
            reserve_s=tunables.reserve_s,
            surplus_s=surplus_s,
        )

    def _price(self) -> tuple[list[float], list[float], list[bool], list[float], list[float]]:
        view, rows = self.turn.view, np.array(self.rows, np.intp)
        away = departures(view, rows, self.turn.tunables.restore)
        return (
            away.evict_s.tolist(),
            away.load_s.tolist(),
            away.is_write.tolist(),
            freed_tokens(view, rows).tolist(),
            unwritten_tokens(view, rows).tolist(),
        )


def may_leave(turn: Turn, firsts_wait: bool) -> Flags:
    """Running rows that may be paused for others now: never one that just came, or is about to end.

    A later run lasts at least the quantum; a first run may end after `first_run_tokens` while others wait for
    their first token. Everybody makes one token at least, or swaps alone could fill the time.
    """
    view, tunables, rows = turn.view, turn.tunables, turn.running
    run_tokens = view.run_tokens[rows]
    is_done = view.engine.now_s - view.since_s[rows] >= tunables.quantum_s - _EPSILON_S
    if firsts_wait:
        is_done |= view.is_first_run[rows] & (run_tokens >= tunables.first_run_tokens)
    ends_s = view.remaining_tokens[rows] * view.engine.step_s
    return is_done & (run_tokens >= 1.0) & view.may_pause[rows] & (ends_s > view.engine.costs.schedule_s)


def beyond_cap(view: View, rows: Rows, max_unread_ratio: float) -> Flags:
    """Readers' rows whose unread tokens exceed the share of their length that is worth having ready."""
    return view.unread_tokens[rows] > max_unread_ratio * view.length_tokens[rows]


def find_victims(turn: Turn, firsts_wait: bool, excess: Flags | None, least_runway_s: float) -> Victims:
    """Candidates, first those outside the admitted set, then those far ahead of their readers, then by runway.

    `least_runway_s` drops at once whoever could not be safe for anybody; rows of `excess` (overload) are kept.
    """
    view, rows = turn.view, turn.running
    runway_s = runways(view, rows)
    keep = may_leave(turn, firsts_wait)
    fits = runway_s >= least_runway_s - _EPSILON_S
    if excess is not None:
        outside = excess[rows]
        fits |= outside
    some = np.flatnonzero(keep & fits)
    rows, runway_s = rows[some], runway_s[some]
    is_beyond = beyond_cap(view, rows, turn.tunables.max_unread_ratio) & (runway_s < np.inf)
    is_excess = np.zeros(some.size, np.bool_) if excess is None else outside[some]
    rank = np.where(is_excess, 0, np.where(is_beyond, 1, 2))
    order = np.lexsort((view.serial[rows], view.arrival_s[rows], -runway_s, rank))
    return Victims(
        turn,
        rows[order].tolist(),
        runway_s[order].tolist(),
        is_beyond[order].tolist(),
        is_excess[order].tolist(),
        [False] * some.size,
    )
