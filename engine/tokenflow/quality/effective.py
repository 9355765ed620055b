"""Effective throughput: tokens that count. Two variants that differ, and both are reported (docs/metrics.md)."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tokenflow.quality.playback import Playback, play
from tokenflow.quality.record import StreamRecord

FULL_RATIO = 0.1  # below this share of the length a token counts fully (paper section 7.1)
NONE_RATIO = 0.2  # from this share on it counts for nothing
AUTHORS_LENGTH_TOKENS = 4096.0  # the constant length of the authors' computation
_ROUNDING_TOKENS = 1e-9


def token_weights(unread_tokens: NDArray[np.float64], length_tokens: float) -> NDArray[np.float64]:
    """1 below 10 % of the length, falling linearly to 0 at 20 %, 0 beyond."""
    full, none = FULL_RATIO * length_tokens, NONE_RATIO * length_tokens
    weights: NDArray[np.float64] = np.clip((none - unread_tokens) / max(none - full, 1e-12), 0.0, 1.0)
    return weights


def added_weight(unread_tokens: float, added_tokens: int, length_tokens: float) -> float:
    """Sum of the weights of `added_tokens` that arrive at once at a reader who has `unread_tokens`: the live figure.

    As `token_weights` of `unread_tokens`, `unread_tokens + 1` and so on, without an array.
    """
    full, none = FULL_RATIO * length_tokens, NONE_RATIO * length_tokens
    if unread_tokens + added_tokens - 1 <= full:  # nearly always one of these two: this runs for every delivery
        return added_tokens
    if unread_tokens >= none:
        return 0.0
    whole = min(max(math.floor(full - unread_tokens) + 1, 0), added_tokens)
    last = min(max(math.ceil(none - unread_tokens), whole), added_tokens)
    count = last - whole
    falling = count * (none - unread_tokens) - count * (whole + last - 1) / 2
    return whole + falling / max(none - full, 1e-12)


def effective_tokens(record: StreamRecord, played: Playback | None = None) -> float:
    """The paper's text: each token by its weight at its arrival, over the stream's own length. 0 without a reader."""
    if record.rate_tok_s is None or not record.token_count:
        return 0.0
    # The buffer that a token meets: what was unread before it came.
    unread_tokens = (played or play(record)).unread_tokens
    return float(token_weights(unread_tokens - 1.0, float(record.token_count)).sum())


def author_score(record: StreamRecord, length_tokens: float = AUTHORS_LENGTH_TOKENS) -> float:
    """The authors' computation: buf += 1 − gap·rate for each gap between tokens; below 0 the (negative) buffer is
    added to the score and reset, else the token's weight over a length of 4096, whatever the stream's own."""
    if record.rate_tok_s is None or record.token_count < 2:
        return 0.0
    steps = 1.0 - np.diff(record.token_times_s) * record.rate_tok_s
    total = np.cumsum(steps)
    # A buffer that is set back to 0 when it falls below is the sum less its least value so far, where that is negative.
    least = np.minimum(np.minimum.accumulate(total), 0.0)
    is_short = np.diff(least, prepend=0.0) < -_ROUNDING_TOKENS
    weights = np.where(is_short, 0.0, token_weights(total - least, length_tokens))
    return float(weights.sum() + least[-1])


def effective_tok_s(records: Iterable[StreamRecord], wall_s: float) -> float:
    """Tokens that count, per second of the run (first send to last token), by the paper's text."""
    return sum(effective_tokens(record) for record in records) / wall_s if wall_s > 0 else 0.0


def effective_tok_s_author(records: Iterable[StreamRecord], wall_s: float) -> float:
    """The same by the authors' computation. May be negative."""
    return sum(author_score(record) for record in records) / wall_s if wall_s > 0 else 0.0
