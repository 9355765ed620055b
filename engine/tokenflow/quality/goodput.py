"""Goodput under limits on TTFT and on the time between tokens."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tokenflow.quality.playback import play
from tokenflow.quality.record import StreamRecord

_ROUNDING_S = 1e-9
_LIMIT = re.compile(r"(ttft|tbt):(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class GoodputLimits:
    """Seconds. A request is good if its first token and every gap between tokens keep within them.

    `tbt_quantile` 1.0 takes every gap; the guide's and DistServe's P99 reading is 0.99.
    """

    ttft_s: float = 0.5
    tbt_s: float = 0.2
    tbt_quantile: float = 1.0

    @classmethod
    def parse(cls, text: str) -> "GoodputLimits":
        """`ttft:500,tbt:200` (milliseconds, as in the load generators' `--goodput`). Raises ValueError."""
        values: dict[str, float] = {}
        for part in text.replace(" ", ",").split(","):
            match = _LIMIT.fullmatch(part)
            if not match or match[1] in values:
                raise ValueError(f"{part!r} is not ttft:MS or tbt:MS, each once")
            values[match[1]] = float(match[2]) / 1e3
        return cls(ttft_s=values.get("ttft", float("inf")), tbt_s=values.get("tbt", float("inf")))


def is_good(record: StreamRecord, limits: GoodputLimits) -> bool:
    """True if the request got its tokens within both limits. One without any token is not good."""
    ttft_s = record.ttft_s
    if ttft_s is None or ttft_s > limits.ttft_s + _ROUNDING_S:
        return False
    gaps_s = np.diff(record.token_times_s)
    return not gaps_s.size or float(np.quantile(gaps_s, limits.tbt_quantile)) <= limits.tbt_s + _ROUNDING_S


def is_smooth(record: StreamRecord, limits: GoodputLimits) -> bool:
    """As `is_good`, but a gap that the reader's buffer covers does not count: the limit is on the stall it causes."""
    ttft_s = record.ttft_s
    if ttft_s is None or ttft_s > limits.ttft_s + _ROUNDING_S or record.rate_tok_s is None:
        return False
    gaps_s = np.diff(play(record).read_times_s) - 1.0 / record.rate_tok_s
    return not gaps_s.size or float(gaps_s.max()) <= limits.tbt_s + _ROUNDING_S


def goodput_ratio(records: Iterable[StreamRecord], limits: GoodputLimits) -> float:
    """Share of the requests sent that are good. 0 for none sent."""
    verdicts = [is_good(record, limits) for record in records]
    return sum(verdicts) / len(verdicts) if verdicts else 0.0


def goodput_tok_s(records: Iterable[StreamRecord], limits: GoodputLimits, wall_s: float) -> float:
    """The guide's effective goodput: tokens of good requests per second of the run."""
    good = sum(record.token_count for record in records if is_good(record, limits))
    return good / wall_s if wall_s > 0 else 0.0
