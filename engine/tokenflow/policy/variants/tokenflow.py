"""Our policy: one urgency in seconds, the safety condition, grouped swaps with a net benefit, an overload mode."""

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.groups import Rotation, classify, order_of, some_beyond
from tokenflow.policy.kv_full import obey_operator, relieve
from tokenflow.policy.overload import admitted
from tokenflow.policy.plan import Plan
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.turn import Turn, open_turn
from tokenflow.policy.urgency import urgencies
from tokenflow.policy.view import View


def decide(view: View, tunables: Tunables) -> Plan:
    """One decision. Returns at once where nobody wants a place and memory is ample."""
    turn = open_turn(view, tunables)
    if turn.running.size:
        obey_operator(turn)
        relieve(turn)
    if turn.seekers.size:
        _serve(turn)
    return turn.close()


def _serve(turn: Turn) -> None:
    excess: NDArray[np.bool_] | None = None
    rows = turn.seekers
    if turn.carry.is_overloaded:
        inside = admitted(turn.view)
        excess = ~inside
        rows = rows[inside[rows]]
        if not rows.size:
            return
    terms = urgencies(turn.view, turn.tunables, rows)
    seekers = classify(turn, rows, terms, some_beyond(turn))
    order = order_of(turn, seekers)
    Rotation(turn, seekers, excess).run(order)
