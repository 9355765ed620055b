"""The KV pool cannot take the next steps: somebody running has to leave at once (docs/policy.md).

This replaces the engine's own decode retraction in every variant. Whoever is safe goes first, then whoever loses
least by it; one stream always goes on running.
"""

import numpy as np

from tokenflow.policy.costs import departures
from tokenflow.policy.ledger import freed_tokens, growth_tokens, headroom_tokens, unwritten_tokens
from tokenflow.policy.plan import Action, Cause
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.turn import Turn, open_turn
from tokenflow.policy.urgency import runways
from tokenflow.policy.victims import leaving_order
from tokenflow.policy.view import View


def begin(view: View, tunables: Tunables) -> Turn:
    """How every variant opens a decision: an operator's hand first, then room for those who run to grow."""
    turn = open_turn(view, tunables)
    if turn.running.size:
        obey_operator(turn)
        relieve(turn)
    return turn


def relieve(turn: Turn) -> None:
    """Pauses running rows until what is left can grow."""
    view, rows, ledger = turn.view, turn.running, turn.ledger
    if rows.size < 2:
        return
    headroom = rows.size * headroom_tokens(view)
    # Copies of paused streams go first, written or given up (`releases`).
    lacking = growth_tokens(view, rows) - (ledger.free_tokens + headroom + ledger.unwritten_tokens)
    if lacking <= 0.0:
        return
    runway_s = runways(view, rows)
    away = departures(view, rows, turn.tunables.restore)
    required_s = turn.tunables.safety_factor * (away.evict_s + away.load_s + view.engine.costs.schedule_s)
    spare_s = runway_s - required_s
    in_quantum = view.engine.now_s - view.since_s[rows] < turn.tunables.quantum_s
    freed = freed_tokens(view, rows)
    order = leaving_order(turn, rows, spare_s, in_quantum, spare_s < 0.0)
    order = order[(view.may_pause[rows] & (freed > 0.0))[order]][: rows.size - 1]
    unwritten = unwritten_tokens(view, rows)
    gone = []
    for index in order.tolist():
        if lacking <= 0.0:
            break
        is_write = bool(away.is_write[index]) and unwritten[index] <= ledger.host_free_tokens
        if is_write:
            ledger.promise_host(float(unwritten[index]))
        turn.pause(
            int(rows[index]),
            Action.PAUSE_OFFLOAD if is_write else Action.PAUSE_DROP,
            Cause.KV_FULL,
            freed_tokens=float(freed[index]),
            runway_s=float(runway_s[index]),
            required_runway_s=float(required_s[index]),
        )
        lacking -= float(freed[index])
        gone.append(index)
    turn.running = np.delete(rows, gone)


def obey_operator(turn: Turn) -> None:
    """Pauses running rows that an operator holds, whatever it costs them. Their KV stays while there is room."""
    view, rows = turn.view, turn.running
    held = view.is_held[rows]
    if not held.any():
        return
    runway_s = runways(view, rows)
    theirs = np.flatnonzero(held)
    for index in theirs[np.argsort(view.serial[rows[theirs]])].tolist():
        row = int(rows[index])
        kept = max(float(view.kv_both_tokens[row] - view.kv_shared_tokens[row]), 0.0)
        turn.pause(row, Action.PAUSE_KEEP, Cause.OPERATOR, freed_tokens=kept, runway_s=float(runway_s[index]))
    turn.running = rows[~held]
