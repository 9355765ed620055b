"""Which paused streams give up their place on the device, and how."""

import numpy as np

from tokenflow.policy.ledger import droppable_tokens, unwritten_tokens
from tokenflow.policy.plan import Release
from tokenflow.policy.urgency import runways
from tokenflow.policy.view import PREEMPTED, View


def releases(
    view: View,
    started: set[int],
    kept: list[int],
    lacking_tokens: float,
    may_give_up_tokens: float,
    host_room_tokens: float,
) -> tuple[Release, ...]:
    """Device copies of paused streams worth `lacking_tokens`, the longest runway first. `kept` are being paused now.

    What the host has is dropped, and what it has room for is written. If that is not enough, as much of what is
    lacking as `may_give_up_tokens` is given up and recomputed later: for the growth of those who run (recomputing
    one paused stream costs less than pausing a running one), and for starts only where nobody runs at all.
    """
    rows = ((view.state == PREEMPTED) & (view.kv_device_tokens > 0.0)).nonzero()[0]
    rows = np.concatenate([rows, np.array(kept, np.intp)])
    rows = rows[np.lexsort((view.serial[rows], view.arrival_s[rows], -runways(view, rows)))]
    columns = (rows, droppable_tokens(view, rows), unwritten_tokens(view, rows))
    copies = [[row, *others] for row, *others in zip(*(c.tolist() for c in columns), strict=True) if row not in started]
    found: dict[int, tuple[float, float]] = {}
    for item in copies:
        row, drop, unwritten = item
        if lacking_tokens <= 0.0:
            break
        written = min(unwritten, host_room_tokens, max(lacking_tokens - drop, 0.0))
        host_room_tokens -= written
        item[2] = unwritten - written
        lacking_tokens -= drop + written
        found[row] = (drop + written, written)
    lacking_tokens = min(lacking_tokens, may_give_up_tokens)
    for row, _, unwritten in copies:
        if lacking_tokens <= 0.0:
            break
        tokens, written = found.get(row, (0.0, 0.0))
        found[row] = (tokens + unwritten, written)
        lacking_tokens -= unwritten
    rids = view.rids
    return tuple(
        Release(rids[row], row, int(tokens), int(written)) for row, (tokens, written) in found.items() if tokens >= 1.0
    )
