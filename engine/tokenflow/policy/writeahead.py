"""Which KV to copy to the host during the next step (docs/policy.md)."""

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.cadence import WRITE_GRAIN_TOKENS
from tokenflow.policy.ledger import sane_tokens, unwritten_tokens
from tokenflow.policy.plan import Write
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.urgency import far_ahead, runways
from tokenflow.policy.view import View

Rows = NDArray[np.intp]

_MOST_WRITES = 256


def writes(view: View, tunables: Tunables, running: Rows, host_room_tokens: float) -> tuple[Write, ...]:
    """Copies of running streams' KV, the likeliest next victims first, within the budget.

    The budget is what the link carries in `transfer_budget_ratio` of a step, less what is in flight, so that no
    copy outlives the step it hides behind; and never more than `host_room_tokens`. Pieces under WRITE_GRAIN_TOKENS
    wait until they have grown: nobody would write them. Without `write_through` only
    as much is written as the arrivals of one eviction's time will want (arrival rate x eviction tail x mean KV).
    `running` leaves out whom the plan pauses: those are written as they leave.
    """
    engine, costs = view.engine, view.engine.costs
    if engine.kv_bytes_per_token <= 0.0 or not running.size or host_room_tokens <= 0.0:
        return ()
    budget_bytes = tunables.transfer_budget_ratio * engine.step_s * costs.d2h_bytes_s - engine.d2h_backlog_bytes
    budget_tokens = min(budget_bytes / engine.kv_bytes_per_token, host_room_tokens)
    page = max(engine.page_tokens, 1)
    least = max(page, WRITE_GRAIN_TOKENS)
    if not budget_tokens >= least:
        return ()
    unwritten = unwritten_tokens(view, running)
    if page > 1:
        unwritten = unwritten // page * page  # whole pages only: the last one still grows
    if not tunables.write_through:
        budget_tokens = min(budget_tokens, _anticipated_tokens(view, running))
    some = (unwritten >= least).nonzero()[0]
    if not some.size:
        return ()
    rows, unwritten = running[some], unwritten[some]
    runway_s = runways(view, rows)
    nearness = np.where(far_ahead(view, tunables, rows), runway_s, -runway_s)
    if rows.size > 4 * _MOST_WRITES:  # sort only those that can be within the budget, if those fill it
        first = (nearness <= np.partition(nearness, _MOST_WRITES)[_MOST_WRITES]).nonzero()[0]
        if unwritten[first].sum() >= budget_tokens:
            rows, unwritten, nearness = rows[first], unwritten[first], nearness[first]
    order = np.lexsort((view.serial[rows], view.arrival_s[rows], nearness))
    return _cut(view, rows[order], unwritten[order], budget_tokens, page, least)


def _anticipated_tokens(view: View, running: Rows) -> float:
    """What still lacks of the pages that should lie fully written, in tokens."""
    costs = view.engine.costs
    wanted = costs.arrival_rate_per_s * costs.evict_tail_s * costs.mean_kv_tokens
    both, device = sane_tokens(view.kv_both_tokens[running]), sane_tokens(view.kv_device_tokens[running])
    return wanted - float(both[both >= device - view.engine.page_tokens].sum())


def _cut(
    view: View, rows: Rows, tokens: NDArray[np.float64], budget_tokens: float, page: int, least: int
) -> tuple[Write, ...]:
    """In order until the budget is spent: whole pages, and no piece shorter than `least` tokens."""
    rids = view.rids
    found: list[Write] = []
    for row, wanted in zip(rows.tolist(), tokens.tolist(), strict=True):
        granted = wanted if wanted <= budget_tokens else budget_tokens // page * page
        if granted < least:
            break
        found.append(Write(rids[row], row, int(granted)))
        budget_tokens -= granted
    return tuple(found)
