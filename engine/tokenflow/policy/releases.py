"""Which paused streams give up their place on the device, and how."""

import numpy as np

from tokenflow.policy.ledger import droppable_tokens, unwritten_tokens
from tokenflow.policy.plan import Release
from tokenflow.policy.urgency import runways
from tokenflow.policy.view import PREEMPTED, View


def releases(
    view: View, started: set[int], lacking_tokens: float, growth_tokens: float, host_room_tokens: float
) -> tuple[Release, ...]:
    """Device copies of paused streams worth `lacking_tokens`, the longest runway first.

    What the host has is dropped, and what it has room for is written. If that is not enough for the growth of those
    who run (`growth_tokens` of what is lacking), copies are given up too: recomputing one paused stream costs less
    than pausing a running one. For starts that is not done: they wait.
    """
    rows = ((view.state == PREEMPTED) & (view.kv_device_tokens > 0.0)).nonzero()[0]
    rows = rows[np.lexsort((view.serial[rows], view.arrival_s[rows], -runways(view, rows)))]
    columns = (rows, droppable_tokens(view, rows), unwritten_tokens(view, rows))
    kept = [[row, *others] for row, *others in zip(*(c.tolist() for c in columns), strict=True) if row not in started]
    found: dict[int, tuple[float, float]] = {}
    for item in kept:
        row, drop, unwritten = item
        if lacking_tokens <= 0.0:
            break
        written = min(unwritten, host_room_tokens, max(lacking_tokens - drop, 0.0))
        host_room_tokens -= written
        item[2] = unwritten - written
        lacking_tokens -= drop + written
        found[row] = (drop + written, written)
    lacking_tokens = min(lacking_tokens, growth_tokens)
    for row, _, unwritten in kept:
        if lacking_tokens <= 0.0:
            break
        tokens, written = found.get(row, (0.0, 0.0))
        found[row] = (tokens + unwritten, written)
        lacking_tokens -= unwritten
    rids = view.rids
    return tuple(
        Release(rids[row], row, int(tokens), int(written)) for row, (tokens, written) in found.items() if tokens >= 1.0
    )
