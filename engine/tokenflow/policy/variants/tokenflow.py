"""Our policy: one urgency in seconds, the safety condition, grouped swaps with a net benefit, an overload mode."""

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.groups import Rotation
from tokenflow.policy.kv_full import begin
from tokenflow.policy.overload import admitted, in_overload
from tokenflow.policy.plan import Plan
from tokenflow.policy.seekers import classify, order_of
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.turn import Turn
from tokenflow.policy.urgency import runways, urgencies
from tokenflow.policy.view import View


def decide(view: View, tunables: Tunables) -> Plan:
    """One decision. Returns at once where nobody wants a place and memory is ample."""
    turn = begin(view, tunables)
    inside = admitted(view, turn.tunables) if turn.is_overloaded else None
    if inside is not None:
        turn.tunables = in_overload(view, tunables, has_excess=not inside[turn.seekers].all())
    if turn.seekers.size:
        _serve(turn, inside)
    return turn.close()


def _serve(turn: Turn, inside: NDArray[np.bool_] | None) -> None:
    """`inside` are the admitted, in overload."""
    view, tunables, rows = turn.view, turn.tunables, turn.seekers
    excess: NDArray[np.bool_] | None = None
    if inside is not None:
        excess = ~inside
        rows = rows[inside[rows]]
        if not rows.size:
            return
    terms = urgencies(view, tunables, rows)
    seekers = classify(turn, rows, terms)
    order = order_of(turn, seekers)
    Rotation(turn, seekers, runways(view, turn.running), excess).run(order)
