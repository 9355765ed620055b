"""A reader who starts at the first token and reads at a fixed rate: when it reads each token, where it stalls."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenflow.quality.record import StreamRecord

_ROUNDING_S = 1e-9


@dataclass(frozen=True, slots=True)
class Playback:
    """`read_times_s` is when the reader starts on each token; gaps beyond 1/rate are stalls (the paper's rebuffering).

    `unread_tokens` is what lay ready just after each token's arrival, that token included.
    """

    read_times_s: NDArray[np.float64]
    unread_tokens: NDArray[np.float64]
    stall_s: float
    stall_count: int


def play(record: StreamRecord) -> Playback:
    """Reads the stream: token j is read at max(its arrival, the time the one before is done).

    A stream that ends is read to its last token without a further stall. Raises ValueError without a rate.
    """
    if record.rate_tok_s is None:
        raise ValueError("nobody reads along with this stream")
    times, period_s = record.token_times_s, 1.0 / record.rate_tok_s
    if not len(times):
        return Playback(np.empty(0), np.empty(0), 0.0, 0)
    index = np.arange(len(times))
    # read_j = max(t_j, read_(j-1) + period) is a running maximum of t_j - j*period.
    read_s = np.maximum.accumulate(times - index * period_s) + index * period_s
    late_s = np.diff(read_s) - period_s
    stalls_s = late_s[late_s > _ROUNDING_S]
    # Consumed, in tokens and fractions of one, when token j arrives: those begun, the last one in part.
    begun = np.searchsorted(read_s, times, side="left")
    last = np.maximum(begun - 1, 0)
    part = np.where(begun > 0, np.clip((times - read_s[last]) / period_s, 0.0, 1.0), 0.0)
    consumed = np.where(begun > 0, last + part, 0.0)
    unread = np.asarray(index + 1.0 - consumed, dtype=np.float64)
    return Playback(read_s, unread, float(stalls_s.sum()), int(stalls_s.size))
