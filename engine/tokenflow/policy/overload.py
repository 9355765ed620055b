"""Demand against capacity: when overload begins and ends, and who is served in it (docs/policy.md, "Overload")."""

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.buffer import MAX_RATE_TOK_S, MIN_RATE_TOK_S
from tokenflow.policy.carry import Carry
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.view import FINISHED, View

ENTER_AFTER_S = 1.0
LEAVE_AFTER_S = 5.0
_LEAST_QUANTA, _MOST_QUANTA = 2, 8
_SWAP_SHARE = 0.05
_AHEAD_S = 30.0  # the admitted set is what can be kept supplied for so long
_MOST_QUANTUM_S = 30.0
_AVERAGING_S = 1.0  # time constant of the average of demand over capacity


class OverloadState(NamedTuple):
    """The part of the carry that belongs to overload."""

    is_overloaded: bool
    demand_ratio: float | None
    beyond_s: float
    switch_count: int


def demand_rates(view: View) -> NDArray[np.float64]:
    """Tokens per second that each row asks for: its rate where somebody reads along and it is live, else 0.

    No stream can be served faster than the engine decodes one stream alone, so what is claimed beyond that does
    not count: one client's claim cannot put the whole server into overload.
    """
    limit = view.engine.stream_limit_tok_s
    top = MAX_RATE_TOK_S if limit is None or not limit > 0 else min(MAX_RATE_TOK_S, limit)
    rates = np.minimum(np.maximum(view.rate_tok_s, MIN_RATE_TOK_S), top)  # both hand NaN on
    rates[~((view.state < FINISHED) & (rates > 0.0))] = 0.0
    return rates


def needed_rates(view: View) -> NDArray[np.float64]:
    """Tokens per second that must be made for each row over the next 30 s, so that its reader is supplied all along:
    its rate less what its unread tokens cover."""
    rates = demand_rates(view)
    unread_tokens = np.fmax(view.unread_tokens, 0.0)  # NaN: nothing
    return np.maximum(rates - unread_tokens / _AHEAD_S, 0.0)


def advance(view: View, tunables: Tunables, elapsed_s: float) -> OverloadState:
    """Overload begins when the average of demand over capacity stays above the enter ratio for 1 s, and ends when it
    stays below the exit ratio for 5 s. Without a known capacity there is none."""
    carry, capacity_tok_s = view.carry, view.engine.capacity_tok_s
    if capacity_tok_s is None or not capacity_tok_s > 0.0 or not math.isfinite(capacity_tok_s):
        count = carry.switch_count + carry.is_overloaded
        return OverloadState(False, None, 0.0, count)
    ratio = float(demand_rates(view).sum()) / capacity_tok_s if len(view) else 0.0
    if carry.demand_ratio is not None:
        weight = 1.0 - math.exp(-elapsed_s / _AVERAGING_S)
        ratio = carry.demand_ratio + weight * (ratio - carry.demand_ratio)
    return _switch(carry, tunables, ratio, elapsed_s)


def in_overload(view: View, tunables: Tunables, *, has_excess: bool) -> Tunables:
    """The same with longer runs: twice the quantum, or as many of it (eight at most) as keep swaps to a twentieth of
    the time. `has_excess`: somebody outside the admitted set wants a place; while nobody does and swaps are free,
    runs stay as short as ever.

    The admitted ask for nearly all that can be served, so nobody gets far ahead, and with short runs they would take
    turns at every quantum: KV would move all the time. On SGLang a batch waits while one of it is loaded, so a batch
    of B that turns over once in a quantum loses B loads of it (docs/policy.md, "Overload").
    """
    least_quanta = _LEAST_QUANTA if has_excess else 1
    quanta = _turnover_s(view) / (_SWAP_SHARE * tunables.quantum_s) if tunables.quantum_s > 0.0 else 0.0
    if not quanta > least_quanta:  # NaN: the price is not known
        quanta = least_quanta
    return _with_runs_of(tunables, int(min(quanta, _MOST_QUANTA)))


def _turnover_s(view: View) -> float:
    """What it takes to load, one after the other, as many streams of mean length as run side by side.

    Nothing where the device holds all KV: short of slots alone, nothing is moved."""
    engine, costs = view.engine, view.engine.costs
    tokens = np.fmax(view.context_tokens[view.state < FINISHED], 0.0)
    total_tokens = float(tokens.sum())
    if not (total_tokens > engine.kv_total_tokens and costs.h2d_bytes_s > 0.0):
        return 0.0
    mean_tokens = max(total_tokens / tokens.size, 1.0)
    batch = min(engine.slot_count, engine.kv_total_tokens / mean_tokens)
    return batch * (costs.load_fixed_s + mean_tokens * engine.kv_bytes_per_token / costs.h2d_bytes_s)


@lru_cache(maxsize=16)
def _with_runs_of(tunables: Tunables, quanta: int) -> Tunables:
    longer_s = min(quanta * tunables.quantum_s, _MOST_QUANTUM_S)
    return replace(tunables, quantum_s=max(tunables.quantum_s, longer_s))


def _switch(carry: Carry, tunables: Tunables, ratio: float, elapsed_s: float) -> OverloadState:
    if carry.is_overloaded:
        is_beyond, after_s = ratio < tunables.overload_exit_ratio, LEAVE_AFTER_S
    else:
        is_beyond, after_s = ratio > tunables.overload_enter_ratio, ENTER_AFTER_S
    beyond_s = carry.beyond_s + elapsed_s if is_beyond else 0.0
    if beyond_s < after_s:
        return OverloadState(carry.is_overloaded, ratio, beyond_s, carry.switch_count)
    return OverloadState(not carry.is_overloaded, ratio, 0.0, carry.switch_count + 1)


def admitted(view: View, tunables: Tunables) -> NDArray[np.bool_]:
    """In overload: the oldest streams that capacity can supply for the next 30 s and whose KV fits device and host
    memory, and at least as many as can run side by side.

    A stream needs r·30 s tokens less what it has unread. Who has just begun asks for its whole rate; a reader with
    30 s of runway for nothing yet, and does not keep others out while it reads on.
    A few fast readers may ask for all of capacity, which a batch of a few does not reach: slots that stood empty then
    would make the queue longer for everybody, where plain first come first served would fill them.
    Strictly in order of arrival: the first that does not fit closes the door behind it, so that a large request is
    not overtaken for ever by small ones. The oldest of all is always in, or nobody might be.
    """
    capacity_tok_s = view.engine.capacity_tok_s
    assert capacity_tok_s is not None
    device_tokens, host_tokens = max(view.engine.kv_total_tokens, 0.0), max(view.engine.host_total_tokens, 0.0)
    # What is written ahead lies on both: a small host pool is full of copies of those who run.
    memory_tokens = max(device_tokens, host_tokens) if tunables.write_through else device_tokens + host_tokens
    order = np.lexsort((view.serial, view.arrival_s))
    can_run = (view.state < FINISHED) & ~view.is_held & (view.context_tokens < view.engine.kv_total_tokens)
    order = order[can_run[order]]
    inside = np.zeros(len(view), np.bool_)
    if order.size:
        rates = np.cumsum(needed_rates(view)[order])
        tokens = np.cumsum(np.fmax(view.context_tokens[order], 0.0))
        can_be_served = (rates <= capacity_tok_s * (1.0 + 1e-9)) & (tokens <= memory_tokens)
        can_run_at_once = (np.arange(order.size) < view.engine.slot_count) & (tokens <= view.engine.kv_total_tokens)
        fits = can_be_served | can_run_at_once
        fits[0] = True
        inside[order[np.logical_and.accumulate(fits)]] = True
    return inside
