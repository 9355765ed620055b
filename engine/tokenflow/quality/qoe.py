"""Quality of experience of one stream: Andes' QoE, the paper's QoS, maximal idle latency."""

from collections.abc import Iterable

import numpy as np

from tokenflow.quality.effective import token_weights
from tokenflow.quality.playback import Playback, play
from tokenflow.quality.record import StreamRecord


def andes_qoe(record: StreamRecord, ttft_target_s: float, played: Playback | None = None) -> float | None:
    """Andes v2 (arXiv 2404.16283): 1 − S_delay/S_whole, between 0 and 1. None without a reader or a token.

    S_delay sums how much later than ideal each token is read, the ideal being the target TTFT and then one token
    per 1/rate; S_whole sums, over all tokens, how long after its ideal time the last token is read.
    """
    if record.rate_tok_s is None or not record.token_count:
        return None
    index = np.arange(record.token_count)
    ideal_s = record.arrival_s + ttft_target_s + index / record.rate_tok_s
    # Reading cannot begin before the ideal first token: being early is no merit and no loan.
    read_s = np.maximum((played or play(record)).read_times_s, ideal_s)
    whole_s = float((read_s[-1] - ideal_s).sum())
    delay_s = float((read_s - ideal_s).sum())
    return 1.0 - delay_s / whole_s if whole_s > 0.0 else 1.0


def max_idle_s(record: StreamRecord, ttft_target_s: float) -> float | None:
    """Smooth goodput's user idle latency (arXiv 2410.14257): the most that any token is behind its deadline.

    Deadlines are the target TTFT and then one token per 1/rate, without resets. 0 if none is late; None without a
    reader or a token.
    """
    if record.rate_tok_s is None or not record.token_count:
        return None
    deadlines_s = record.arrival_s + ttft_target_s + np.arange(record.token_count) / record.rate_tok_s
    return max(float((record.token_times_s - deadlines_s).max()), 0.0)


def qos(
    records: Iterable[StreamRecord], wall_s: float, *, ttft_weight: float = 1.0, stall_weight: float = 1.0
) -> float:
    """Equation 2 of the paper, per second: sum of token weights − λ·TTFT − μ·rebuffering, over the run's time.

    The paper gives no λ and no μ (`ttft_weight`, `stall_weight`, in tokens per second). Unstarted streams add nothing.
    """
    total = 0.0
    for record in records:
        if record.rate_tok_s is None or record.ttft_s is None:
            continue
        played = play(record)
        weights = token_weights(played.unread_tokens - 1.0, float(record.token_count))
        total += float(weights.sum()) - ttft_weight * record.ttft_s - stall_weight * played.stall_s
    return total / wall_s if wall_s > 0 else 0.0
