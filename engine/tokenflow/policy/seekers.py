"""Everybody who wants a place: by which rule each may ask somebody to leave, and in which order they are served."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.plan import Cause
from tokenflow.policy.turn import Turn
from tokenflow.policy.urgency import Urgencies

Rows = NDArray[np.intp]

# What stands in `wants`.
NOTHING: Final = 0
FIRST: Final = 1
RESCUE: Final = 2
OUTRANK: Final = 3  # one of the admitted against one who is not, in overload
BOUND: Final = 4
RIDE: Final = 5  # taken along by a group that goes anyway
CAUSES: Final = (
    Cause.FREE_PLACE,
    Cause.FIRST_TOKEN,
    Cause.RESCUE,
    Cause.OVERLOAD,
    Cause.STARVATION_BOUND,
    Cause.RESCUE,
)

_SPARE_CANDIDATES = 32  # looked at beyond those who could get a place at all


@dataclass(frozen=True, slots=True)
class Seekers:
    """Rows with their terms; `wants` holds one of the numbers above for each."""

    rows: Rows
    terms: Urgencies
    wants: NDArray[np.int8]
    firsts_wait: bool
    has_bound: bool


def classify(turn: Turn, rows: Rows, terms: Urgencies) -> Seekers:
    """Who may ask for a swap, and why.

    A rotation begins when a first token is awaited or a paused stream has less than one step (beyond lead and
    reserve) left; it takes everybody along who would have less than a quantum left, and, unless first tokens wait,
    whoever of the others gains by it: the step in which streams come back is paid for by then. One row at most is
    marked as past the starvation bound: the one that has gone without for longest.
    """
    view, tunables = turn.view, turn.tunables
    step_s = view.engine.step_s
    is_overloaded = turn.is_overloaded
    # In overload any of the admitted may take the place of somebody who is not.
    wants = np.full(rows.size, OUTRANK if is_overloaded else NOTHING, np.int8)
    firsts_wait = bool(terms.is_first.any())
    if terms.is_paused_reader.any():
        ahead_s = view.engine.costs.schedule_s + tunables.reserve_s
        margin_s = np.where(terms.is_paused_reader, terms.slack_s - terms.lead_s - ahead_s, np.inf)
        begins = firsts_wait or bool(margin_s.min() <= step_s)
        if begins and not (firsts_wait or is_overloaded):
            wants[terms.is_paused_reader] = RIDE
        if begins:
            wants[margin_s <= max(tunables.quantum_s, step_s)] = RESCUE
    if firsts_wait:
        wants[terms.is_first] = FIRST
    has_bound = not is_overloaded and bool(terms.starving_s.max() >= tunables.starvation_bound_s)
    if has_bound:
        wants[np.lexsort((view.serial[rows], view.arrival_s[rows], -terms.starving_s))[0]] = BOUND
    return Seekers(rows, terms, wants, firsts_wait, has_bound)


def order_of(turn: Turn, seekers: Seekers) -> list[int]:
    """Indices of the seekers worth looking at, the most urgent first; whoever is past the bound leads.

    Only as many as could get a place are sorted: the rest is cut off at the right urgency in linear time.
    """
    view, rows, urgency_s = turn.view, seekers.rows, seekers.terms.urgency_s
    picked = np.arange(rows.size) if turn.ledger.slots > 0 else seekers.wants.nonzero()[0]
    most = turn.ledger.slots + turn.running.size + _SPARE_CANDIDATES
    if picked.size > 2 * most:
        limit = np.partition(urgency_s[picked], most)[most]
        within = urgency_s[picked] <= limit
        if seekers.has_bound:
            within |= seekers.wants[picked] == BOUND
        picked = picked[within]
    chosen = rows[picked]
    keys = [view.serial[chosen], view.arrival_s[chosen], urgency_s[picked]]
    if seekers.has_bound:
        keys.append(seekers.wants[picked] != BOUND)
    ordered: list[int] = picked[np.lexsort(keys)].tolist()
    return ordered[: most + 1]
