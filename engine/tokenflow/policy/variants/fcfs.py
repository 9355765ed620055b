"""First come, first served, run to completion: the order of arrival, no swaps.

Whoever had to leave for a full KV pool comes back in its old place. The first that does not fit holds up those
behind it, as vLLM's and SGLang's conservative admission do.
"""

import numpy as np

from tokenflow.policy.costs import restores
from tokenflow.policy.kv_full import begin
from tokenflow.policy.ledger import claims
from tokenflow.policy.plan import Cause, Plan
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.turn import Turn
from tokenflow.policy.urgency import Rows
from tokenflow.policy.view import View


def decide(view: View, tunables: Tunables) -> Plan:
    """One decision. Overload changes nothing: this is what it falls back to."""
    turn = begin(view, tunables)
    if turn.seekers.size and turn.ledger.slots > 0:
        admit_in_order(turn, turn.seekers, Cause.FREE_PLACE)
    return turn.close()


def admit_in_order(turn: Turn, rows: Rows, cause: Cause) -> None:
    """Starts the oldest of `rows` one by one until the first that finds no slot or no pages."""
    view = turn.view
    order = rows[np.lexsort((view.serial[rows], view.arrival_s[rows]))][: turn.ledger.slots]
    asked = claims(view, turn.tunables, order)
    is_load = restores(view, order, turn.tunables.restore).is_load.tolist()
    for row, tokens, own_tokens, load in zip(order.tolist(), *asked, is_load, strict=True):
        if not turn.ledger.can_take(tokens, own_tokens):
            if turn.ledger.slots > 0:
                turn.blocked.append(row)
            return
        turn.start(row, cause, tokens, own_tokens, load)
