"""Section 4 of the paper as published (arXiv 2510.02758), on slices of one second.

Where the print is ambiguous: the value of a request is v = e^(−b) over its buffer b in tokens, so that whoever is
nearly empty comes first (printed as a penalty it would come last); the safety rule applies to those who run and could
leave; W_max is the number of slots; λ of equation 5 is not given. In overload the literal fallback: first come, first
served within memory, new requests only while the rates of those in progress fit. See docs/policy.md.
"""

import math

import numpy as np

from tokenflow.policy.exchange import Exchange
from tokenflow.policy.kv_full import begin
from tokenflow.policy.overload import demand_rates
from tokenflow.policy.plan import Cause, Plan
from tokenflow.policy.safety import required_runway_s
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.turn import Turn
from tokenflow.policy.urgency import Floats, Rows, runways, urgencies
from tokenflow.policy.variants.fcfs import admit_in_order
from tokenflow.policy.victims import Departure
from tokenflow.policy.view import FINISHED, WAITING, View

SLICE_S = 1.0
SHRINK = 0.5  # λ of equation 5
CRITICAL_S = 0.5  # T_critical: a buffer below this makes a slice due although nobody waits
MARGIN_TOKENS = 64  # KV that each request gets beyond its context
_EPSILON_S = 1e-9


def working_set(view: View, running_count: int) -> int:
    """Equations 4 and 5: how many requests the schedule may hold."""
    live = view.state < FINISHED
    contexts = np.fmax(view.context_tokens[live], 0.0)
    footprint = (float(contexts.mean()) if contexts.size else 0.0) + MARGIN_TOKENS
    static = math.floor(max(view.engine.kv_total_tokens, 0.0) / footprint)
    if running_count >= view.engine.slot_count:
        return static
    return max(math.floor(static - SHRINK * (static - running_count)), 1)


def decide(view: View, tunables: Tunables) -> Plan:
    """One decision: between slices only places that are free anyway are given, in order of arrival."""
    turn = begin(view, tunables)
    if turn.seekers.size:
        if turn.is_overloaded:
            _fall_back(turn)
        elif _is_due(turn):
            turn.slice_s = 0.0
            _reschedule(turn)
        elif _is_past_bound(turn):  # ours: nobody waits for a slice beyond the bound
            _reschedule(turn)
        elif turn.ledger.slots > 0:
            admit_in_order(turn, turn.seekers, Cause.FREE_PLACE)
    return turn.close()


def _is_due(turn: Turn) -> bool:
    view, rows = turn.view, turn.seekers
    if turn.slice_s < SLICE_S - _EPSILON_S:
        return False
    return bool((view.state[rows] == WAITING).any() or (runways(view, rows) < CRITICAL_S).any())


def _is_past_bound(turn: Turn) -> bool:
    view, rows = turn.view, turn.seekers
    is_read = view.is_started[rows] & (view.rate_tok_s[rows] >= 0.0)
    gone_s = np.where(is_read, view.dry_s[rows], view.engine.now_s - view.since_s[rows])
    return bool((gone_s >= turn.tunables.starvation_bound_s).any())


def _fall_back(turn: Turn) -> None:
    """Paused requests return in order of arrival; new ones only while Σr of all in progress stays within capacity."""
    view, rows = turn.view, turn.seekers
    assert view.engine.capacity_tok_s is not None
    rates = demand_rates(view)
    in_progress = (view.state != WAITING) & (view.state < FINISHED)
    fresh = rows[view.state[rows] == WAITING]
    fresh = fresh[np.lexsort((view.serial[fresh], view.arrival_s[fresh]))]
    room = view.engine.capacity_tok_s - float(rates[in_progress].sum())
    count = int(np.searchsorted(np.cumsum(rates[fresh]), room, side="right"))
    if not in_progress.any():
        count = max(count, 1)
    returning = rows[view.state[rows] != WAITING]
    admit_in_order(turn, np.concatenate([returning, fresh[:count]]), Cause.OVERLOAD)


def _reschedule(turn: Turn) -> None:
    """Buffer balancing: greedy by value, then the local search over adjacent pairs."""
    view, tunables = turn.view, turn.tunables
    rows = turn.seekers
    terms = urgencies(view, tunables, rows)
    exchange = Exchange(turn, terms, tunables.safety_factor * view.engine.costs.schedule_s)

    def safe(_number: int, leaving: Departure) -> float | None:
        return required_runway_s(
            evict_s=leaving.evict_s,
            load_s=leaving.load_s,
            schedule_s=view.engine.costs.schedule_s,
            safety_factor=tunables.safety_factor,
        )

    if exchange.is_hopeless():
        return
    first = exchange.serve_starving(lambda _index: safe)
    victims = exchange.victims
    buffers = _buffers(view, np.array(victims.rows, np.intp)).tolist()
    mine = _buffers(view, rows)
    order = _local_search(
        turn, rows, exchange.claims.tokens, np.lexsort(_priority_keys(view, rows, mine)).tolist(), terms.lead_s
    )
    staying_count = turn.running.size - exchange.gone_count
    room = min(working_set(view, turn.running.size), view.engine.slot_count) - staying_count - len(turn.starts)
    for index in order:
        if index == first:
            continue
        if room > 0 and exchange.start_free(index):
            room -= 1
            continue
        buffer = float(mine[index])

        def outranked(number: int, leaving: Departure, buffer: float = buffer) -> float | None:
            return safe(number, leaving) if buffers[number] > buffer else None

        cause = Cause.FIRST_TOKEN if terms.is_first[index] else Cause.RESCUE
        is_full = room <= 0 or turn.ledger.slots <= 0
        if not exchange.swap(index, cause, outranked, takes_place=room <= 0) and is_full:
            break  # sorted by value: nobody behind outranks more
    exchange.close()


def _buffers(view: View, rows: Rows) -> Floats:
    """b in tokens: what the paper's value is a function of. Nobody reading counts as a full buffer."""
    tokens = np.fmin(np.fmax(view.unread_tokens[rows], 0.0), 1e9)
    return np.where(np.isnan(view.rate_tok_s[rows]), np.inf, tokens)


def _priority_keys(view: View, rows: Rows, buffers: Floats) -> tuple[Floats, ...]:
    """Sort keys, the last one first: e^(−b) falls with b, so b itself is sorted, where e^(−b) would be 0 for all."""
    rates = np.nan_to_num(view.rate_tok_s[rows], nan=0.0, posinf=1e9)
    return view.serial[rows].astype(float), view.arrival_s[rows], -rates, buffers


def _local_search(turn: Turn, rows: Rows, claim_tokens: list[float], order: list[int], lead_s: Floats) -> list[int]:
    """Adjacent pairs change places where that raises v·(t − t_overhead) within the memory that is free.

    In a list that is sorted by value already this can only matter at the edge of memory (docs/policy.md)."""
    buffers = _buffers(turn.view, rows)
    gain = np.exp(-np.minimum(buffers, 700.0)) * (SLICE_S - np.minimum(lead_s, SLICE_S))
    free = turn.ledger.free_tokens + turn.ledger.unwritten_tokens
    used = 0.0
    order = list(order)
    for place in range(min(len(order) - 1, turn.view.engine.slot_count)):
        here, behind = order[place], order[place + 1]
        fits_here, fits_behind = used + claim_tokens[here] <= free, used + claim_tokens[behind] <= free
        if (not fits_here and fits_behind) or (fits_here == fits_behind and gain[behind] > gain[here]):
            order[place], order[place + 1] = behind, here
        used += claim_tokens[order[place]]
    return order
