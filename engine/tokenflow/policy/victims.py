"""Who among the running could make room, in which order, and on which terms."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.costs import departures
from tokenflow.policy.ledger import droppable_tokens, freed_tokens, unwritten_tokens
from tokenflow.policy.plan import Action
from tokenflow.policy.turn import Turn
from tokenflow.policy.urgency import Floats, far_ahead, runways

Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]

_EPSILON_S = 1e-9
_KEEP, _OFFLOAD, _DROP = Action.PAUSE_KEEP, Action.PAUSE_OFFLOAD, Action.PAUSE_DROP


class Departure(NamedTuple):
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
    is_excess: list[bool]
    is_used: list[bool]
    ahead_from: int  # from this place on they are far ahead of their readers, the least of them first
    _away: list[Departure] | None = None
    _kept: list[float] | None = None

    def departure(self, index: int, frees_pages: bool, written_tokens: float = 0.0) -> Departure:
        """A pause for a slot alone leaves the KV where it is; one for pages sends it away.

        `written_tokens` of the host's room go to those who leave with it.
        """
        if not frees_pages:
            if self._kept is None:
                self._kept = droppable_tokens(self.turn.view, np.array(self.rows, np.intp)).tolist()
            return Departure(_KEEP, 0.0, 0.0, self._kept[index], 0.0)
        if self._away is None:
            self._away = self._price()
        leaving = self._away[index]
        if leaving.action is _OFFLOAD and leaving.written_tokens > self.turn.ledger.host_free_tokens - written_tokens:
            costs = self.turn.view.engine.costs  # the host filled up within this decision
            context = self.turn.view.context_tokens.item(self.rows[index])
            load_s = costs.prefill_fixed_s + costs.prefill_row_s + context * costs.prefill_s_per_token
            return Departure(_DROP, 0.0, load_s, leaving.freed_tokens, 0.0)
        return leaving

    def _price(self) -> list[Departure]:
        view, rows = self.turn.view, np.array(self.rows, np.intp)
        away = departures(view, rows, self.turn.tunables.restore)
        return [
            Departure(_OFFLOAD if is_write else _DROP, evict_s, load_s, freed, unwritten if is_write else 0.0)
            for evict_s, load_s, is_write, freed, unwritten in zip(
                away.evict_s.tolist(),
                away.load_s.tolist(),
                away.is_write.tolist(),
                freed_tokens(view, rows).tolist(),
                unwritten_tokens(view, rows).tolist(),
                strict=True,
            )
        ]


def may_leave(turn: Turn, firsts_wait: bool) -> Flags:
    """Running rows that may be paused for others now: never one that just came, or is about to end.

    A later run lasts at least the quantum; a first run may end after `first_run_tokens` while others wait for
    their first token. Everybody makes one token at least, or swaps alone could fill the time.
    """
    view, rows = turn.view, turn.running
    run_tokens = view.run_tokens[rows]
    is_done = has_run(turn, firsts_wait)
    least_tokens = view.engine.costs.schedule_s / max(view.engine.step_s, 1e-4)
    return is_done & (run_tokens >= 1.0) & view.may_pause[rows] & (view.remaining_tokens[rows] > least_tokens)


def has_run(turn: Turn, firsts_wait: bool) -> Flags:
    """Running rows whose run has been long enough."""
    return run_left_s(turn, firsts_wait) <= _EPSILON_S


def run_left_s(turn: Turn, firsts_wait: bool) -> Floats:
    """Seconds that each running row must still run before it may leave; 0 or less for those who may."""
    view, tunables, rows = turn.view, turn.tunables, turn.running
    left_s: Floats = view.since_s[rows] + tunables.quantum_s - view.engine.now_s
    if firsts_wait:
        tokens = tunables.first_run_tokens - view.run_tokens[rows]
        first_s = np.where(view.is_first_run[rows], tokens * max(view.engine.step_s, 1e-4), np.inf)
        left_s = np.minimum(left_s, first_s)
    return left_s


def ready_in(turn: Turn, firsts_wait: bool) -> list[float]:
    """Seconds until each of those will have run long enough who may not leave yet, the next one first."""
    left_s = run_left_s(turn, firsts_wait)[turn.view.may_pause[turn.running]]
    return sorted(left_s[left_s > _EPSILON_S].tolist())


def leaving_order(turn: Turn, rows: Rows, spare_s: Floats, *ranks: NDArray[Any]) -> Rows:
    """In which order running rows leave: by `ranks`, the last of which counts most, and then by what they can spare.

    Whoever has most to spare goes first, up to far ahead of its reader; those beyond come last, the furthest ahead at
    the end. Between them what the engine makes more than is read goes to a few, who finish early and leave their
    memory and their share of the demand to others, instead of lying about in everybody's buffer (docs/policy.md).
    """
    view, is_ahead = turn.view, far_ahead(turn.view, turn.tunables, rows) & (spare_s >= 0.0)
    nearness = np.where(is_ahead, spare_s, -spare_s)
    order: Rows = np.lexsort((view.serial[rows], view.arrival_s[rows], nearness, is_ahead, *ranks))
    return order


def find_victims(
    turn: Turn, firsts_wait: bool, least_runway_s: float, excess: Flags | None = None, runway_s: Floats | None = None
) -> Victims:
    """Candidates, first those outside the admitted set, then as `leaving_order` says (the variants that follow other
    people's formulas: the longest runway first).

    `least_runway_s` drops at once whoever could not be safe for anybody; rows of `excess` (overload) are kept.
    `runway_s` of the running rows, where the caller has it already.
    """
    view, rows = turn.view, turn.running
    if runway_s is None:
        runway_s = runways(view, rows)
    fits = runway_s >= least_runway_s - _EPSILON_S
    if excess is not None:
        fits |= excess[rows]
    some = (fits & may_leave(turn, firsts_wait)).nonzero()[0]
    if not some.size:
        return Victims(turn, [], [], [], [], 0)
    rows, runway_s = rows[some], runway_s[some]
    is_excess = np.zeros(some.size, np.bool_) if excess is None else excess[rows]
    order = leaving_order(turn, rows, runway_s, ~is_excess)
    return Victims(
        turn,
        rows[order].tolist(),
        runway_s[order].tolist(),
        is_excess[order].tolist(),
        [False] * some.size,
        some.size - int((far_ahead(turn.view, turn.tunables, rows) & ~is_excess).sum()),
    )
