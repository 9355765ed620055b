"""All readers at once: the rules of the policy's VirtualBuffer (policy/buffer.py) on columns.

Tokens are delivered when they are made. A reader begins at its first visible token, reads at its rate and never past
what is there; time with nothing to read is `dry_s` until the next token.
"""

import numpy as np
from numpy.typing import NDArray

from tokenflow.sim.streams import Streams

Rows = NDArray[np.intp]
Floats = NDArray[np.float64]

_ROUNDING_S = 1e-9  # below this a gap is a rounding error, not a stall


def advance(streams: Streams, now_s: float) -> None:
    """Every reader reads up to now."""
    unread, clock_s = streams.column("unread_tokens"), streams.column("reader_s")
    rate = streams.column("read_rate_tok_s")
    left = unread - (now_s - clock_s) * rate
    short = left < 0.0
    if short.any():
        gap_s = -left[short] / rate[short]
        streams.column("dry_s")[short] += np.where(gap_s > _ROUNDING_S, gap_s, 0.0)
        left[short] = 0.0
    unread[:] = left
    clock_s[:] = now_s


def deliver(streams: Streams, rows: Rows, times_s: Floats, *, has_hidden: bool) -> None:
    """Each of `rows` has got one token at each of `times_s`. Call before `made_tokens` is raised.

    With `has_hidden`, all tokens of a row are of the same kind: the caller cuts where hidden ones end.
    """
    clock_s, unread = streams.column("reader_s"), streams.column("unread_tokens")
    if has_hidden:
        made = streams.column("made_tokens")[rows]
        rows = rows[made >= streams.column("hidden_tokens")[rows]]
        if not rows.size:
            return
    begin(streams, rows, float(times_s[0]))
    rate = streams.column("read_rate_tok_s")[rows]
    have = np.maximum(unread[rows] - (times_s[0] - clock_s[rows]) * rate, 0.0) + 1.0
    if len(times_s) > 1:
        gaps_s = times_s[1:] - times_s[:-1]
        if float(gaps_s.max()) * float(rate.max()) <= 1.0:  # nobody runs dry between two tokens
            have += (len(times_s) - 1) - rate * (times_s[-1] - times_s[0])
        else:
            for gap_s in gaps_s.tolist():
                have = np.maximum(have - gap_s * rate, 0.0) + 1.0
    unread[rows] = have
    clock_s[rows] = times_s[-1]
    streams.column("dry_s")[rows] = 0.0


def begin(streams: Streams, rows: Rows, now_s: float) -> None:
    """Those of `rows` whose first visible token this is begin to read."""
    started = streams.column("is_started")
    new = rows[~started[rows]]
    if new.size:
        started[new] = True
        streams.column("reader_s")[new] = now_s
        streams.column("read_rate_tok_s")[new] = np.nan_to_num(streams.column("rate_tok_s")[new], nan=0.0)
