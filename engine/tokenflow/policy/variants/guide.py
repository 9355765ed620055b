"""The TokenFlow guide's policy: its eligibility and its priority formula, evaluated at every decision.

Eligible to leave: slack of at least the newcomer's prefill + ε and above the surplus threshold. Priority:
P = −ln(max(S, δ)) + λ/(wait + δ) + μ·[unstarted]; the highest sum of P that fits runs. The guide gives no numbers
for δ, λ and μ; ε is `reserve_s` (0.5 s there), the threshold `surplus_s` (2.0 s there). As printed, λ/(wait + δ)
favours whoever came last; it is applied to those who queue, since the formula would otherwise favour whoever runs.
In overload the guide names no rule: nothing changes. See docs/policy.md.
"""

import numpy as np

from tokenflow.policy.exchange import Condition, Exchange
from tokenflow.policy.kv_full import begin
from tokenflow.policy.plan import Cause, Plan
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.turn import Turn
from tokenflow.policy.urgency import Floats, Rows, runways, urgencies
from tokenflow.policy.victims import Departure
from tokenflow.policy.view import PREEMPTED, View

DELTA_S = 0.1
LAMBDA = 0.5
UNSTARTED_BONUS = 2.0
_MOST_TRIED = 16  # newcomers for whom room could not be made, before giving up in this decision


def priorities(view: View, rows: Rows) -> Floats:
    """P of the guide. A request that nobody reads along with has no slack: it ranks as one with plenty."""
    slack_s = np.minimum(runways(view, rows), 1e6)
    is_queued = view.state[rows] <= PREEMPTED
    wait_s = np.fmax(view.engine.now_s - view.since_s[rows], 0.0)
    fairness = np.where(is_queued, LAMBDA / (wait_s + DELTA_S), 0.0)
    unstarted = ~view.is_started[rows] & (slack_s < 1e6)
    priority: Floats = -np.log(np.maximum(slack_s, DELTA_S)) + fairness + UNSTARTED_BONUS * unstarted
    return priority


def decide(view: View, tunables: Tunables) -> Plan:
    """One decision."""
    turn = begin(view, tunables)
    if turn.seekers.size:
        _serve(turn)
    return turn.close()


def _serve(turn: Turn) -> None:
    view, tunables, rows = turn.view, turn.tunables, turn.seekers
    terms = urgencies(view, tunables, rows)
    exchange = Exchange(turn, terms, max(tunables.reserve_s, tunables.surplus_s))
    if exchange.is_hopeless():
        return
    priority = priorities(view, rows)
    order = np.lexsort((view.serial[rows], view.arrival_s[rows], -priority)).tolist()
    victims = exchange.victims
    theirs = priorities(view, np.array(victims.rows, np.intp)).tolist()
    lead_s = terms.lead_s.tolist()

    def eligible_for(index: int, must_outrank: bool) -> Condition:
        window_s = max(lead_s[index] + tunables.reserve_s, tunables.surplus_s)

        def condition(number: int, _leaving: Departure) -> float | None:
            return None if must_outrank and theirs[number] >= priority[index] else window_s

        return condition

    first = exchange.serve_starving(lambda index: eligible_for(index, False))
    tried = 0
    for index in order:
        if index == first or exchange.start_free(index):
            continue
        if turn.ledger.slots > 0:
            turn.blocked.append(int(rows[index]))
        cause = Cause.FIRST_TOKEN if terms.is_first[index] else Cause.RESCUE
        tried += not exchange.swap(index, cause, eligible_for(index, True))
        if tried >= _MOST_TRIED or (turn.ledger.slots <= 0 and all(victims.is_used)):
            break
    exchange.close()
