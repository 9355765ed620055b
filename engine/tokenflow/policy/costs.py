"""What it costs to pause a stream and to bring it back: service times plus the queue in front now, never both twice.

The times that `CostEstimator` (tokenflow.policy.estimator) measures are service times without queueing; the queue
is priced here from the transfer backlog at the moment of the decision (paper section 4.2, its t_IO).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.tunables import Restore

if TYPE_CHECKING:
    from tokenflow.policy.view import View

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured costs in force for one decision; the defaults are careful guesses for a host that measured nothing.

    Bandwidths are low tails in bytes per second, times are high tails in seconds, over one direction alone.
    """

    evict_fixed_s: float = 0.002
    load_fixed_s: float = 0.002
    d2h_bytes_s: float = 5e9
    h2d_bytes_s: float = 5e9
    schedule_s: float = 0.05  # the step in progress and one prefill chunk
    prefill_fixed_s: float = 0.005  # of one step with prefill, however many requests are in it
    prefill_row_s: float = 0.0  # of each request in it
    prefill_s_per_token: float = 2e-4
    arrival_rate_per_s: float = 0.0  # moving average
    release_rate_per_s: float = 0.0  # places that come free by themselves; 0: not known
    evict_tail_s: float = 0.05  # of one whole eviction, sizes what is written ahead
    mean_kv_tokens: float = 0.0  # of running requests


@dataclass(frozen=True, slots=True)
class Restores:
    """For some rows: seconds until each could generate again once it gets a place, and by which way."""

    lead_s: Floats
    shared_s: Floats  # the part of the lead that a whole group pays once: one step with prefill
    is_load: NDArray[np.bool_]  # from the host; else whatever is missing is computed again


def prefill_s(view: "View", rows: Rows) -> Floats:
    """Seconds of prefill that each waiting request needs for its first token."""
    costs = view.engine.costs
    missing = np.fmax(view.context_tokens[rows] - view.kv_device_tokens[rows], 1.0)
    return costs.prefill_fixed_s + costs.prefill_row_s + missing * costs.prefill_s_per_token


def restores(view: "View", rows: Rows, restore: Restore) -> Restores:
    """Load against recompute for paused streams; the evict is sunk (docs/policy.md).

    A load brings back what only the host has; what neither side has is recomputed in both cases. A stream whose
    KV never left the device needs neither: it is a load of nothing.
    """
    engine, costs = view.engine, view.engine.costs
    device = view.kv_device_tokens[rows]
    missing = np.fmax(view.context_tokens[rows] - device, 0.0)
    on_host = np.fmin(np.fmax(view.kv_host_tokens[rows] - view.kv_both_tokens[rows], 0.0), missing)
    begin_s = costs.prefill_fixed_s + costs.prefill_row_s
    compute_s = missing * costs.prefill_s_per_token + np.where(missing > 0.0, begin_s, 0.0)
    queue_s = costs.load_fixed_s + engine.h2d_backlog_bytes / costs.h2d_bytes_s
    nowhere = missing - on_host
    load_s = (
        np.where(on_host > 0.0, queue_s + on_host * (engine.kv_bytes_per_token / costs.h2d_bytes_s), 0.0)
        + nowhere * costs.prefill_s_per_token
        + np.where(nowhere > 0.0, begin_s, 0.0)
    )
    if restore is Restore.LOAD:
        is_load = np.ones(len(rows), np.bool_)
    elif restore is Restore.RECOMPUTE:
        is_load = missing <= 0.0
    else:
        is_load = load_s <= compute_s
    computes = np.where(is_load, nowhere, missing) > 0.0
    return Restores(np.where(is_load, load_s, compute_s), np.where(computes, costs.prefill_fixed_s, 0.0), is_load)


@dataclass(frozen=True, slots=True)
class Departures:
    """For running rows: what it would cost to send their KV away and fetch it again later."""

    evict_s: Floats
    load_s: Floats
    is_write: NDArray[np.bool_]  # what is not on the host yet is written; else dropped and recomputed later


def departures(view: "View", rows: Rows, restore: Restore) -> Departures:
    """Both ways for victims whose device memory is needed. A full host pool leaves only recomputing."""
    engine, costs = view.engine, view.engine.costs
    context = np.fmax(view.context_tokens[rows], 0.0)
    unwritten = np.fmax(view.kv_device_tokens[rows] - view.kv_both_tokens[rows], 0.0)
    bytes_per_token = engine.kv_bytes_per_token
    evict_s = np.where(
        unwritten > 0.0,
        costs.evict_fixed_s
        + engine.d2h_backlog_bytes / costs.d2h_bytes_s
        + unwritten * (bytes_per_token / costs.d2h_bytes_s),
        0.0,
    )
    load_s = (
        costs.load_fixed_s
        + engine.h2d_backlog_bytes / costs.h2d_bytes_s
        + context * (bytes_per_token / costs.h2d_bytes_s)
    )
    compute_s = costs.prefill_fixed_s + costs.prefill_row_s + context * costs.prefill_s_per_token
    if restore is Restore.RECOMPUTE:
        is_write = np.zeros(len(rows), np.bool_)
    else:
        is_write = unwritten <= engine.host_free_tokens
        if restore is Restore.AUTO:
            is_write &= evict_s + load_s <= compute_s
    return Departures(np.where(is_write, evict_s, 0.0), np.where(is_write, load_s, compute_s), is_write)
