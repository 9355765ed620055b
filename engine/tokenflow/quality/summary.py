"""Everything about a run in one place, for the benchmarks, the simulator and the load generator."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenflow.quality.effective import author_score, effective_tokens
from tokenflow.quality.goodput import GoodputLimits, goodput_ratio, goodput_tok_s
from tokenflow.quality.playback import play
from tokenflow.quality.qoe import andes_qoe, max_idle_s, qos
from tokenflow.quality.record import StreamRecord


@dataclass(frozen=True, slots=True)
class QualitySummary:
    """Figures of one run; docs/metrics.md defines each. None where there is nothing to take it of.

    Quantiles are linear (NumPy's). `wall_s` is from the first arrival to the last token.
    """

    request_count: int
    started_count: int
    wall_s: float
    ttft_mean_s: float | None
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    raw_tok_s: float
    effective_tok_s: float
    effective_tok_s_author: float
    qos: float
    qoe_mean: float | None
    stall_s_total: float
    stall_count: int
    max_idle_s_p99: float | None
    goodput_ratio: float
    goodput_tok_s: float


def summarise(
    records: Sequence[StreamRecord], *, ttft_target_s: float = 1.0, limits: GoodputLimits | None = None
) -> QualitySummary:
    """The summary of all streams of a run, those without a reader or a token included."""
    limits = limits or GoodputLimits()
    times = [float(record.token_times_s[-1]) for record in records if record.token_count]
    wall_s = max(times) - min(record.arrival_s for record in records) if times else 0.0
    ttfts = [record.ttft_s for record in records if record.ttft_s is not None]
    read = [record for record in records if record.rate_tok_s is not None and record.token_count]
    played = [play(record) for record in read]
    qoes = [value for record in read if (value := andes_qoe(record, ttft_target_s)) is not None]
    idles = [value for record in read if (value := max_idle_s(record, ttft_target_s)) is not None]
    per_s = 1.0 / wall_s if wall_s > 0 else 0.0
    return QualitySummary(
        request_count=len(records),
        started_count=len(ttfts),
        wall_s=wall_s,
        ttft_mean_s=float(np.mean(ttfts)) if ttfts else None,
        ttft_p50_s=_quantile(ttfts, 0.5),
        ttft_p99_s=_quantile(ttfts, 0.99),
        raw_tok_s=sum(record.token_count for record in records) * per_s,
        effective_tok_s=sum(map(effective_tokens, read)) * per_s,
        effective_tok_s_author=sum(map(author_score, read)) * per_s,
        qos=qos(read, wall_s),
        qoe_mean=float(np.mean(qoes)) if qoes else None,
        stall_s_total=sum(one.stall_s for one in played),
        stall_count=sum(one.stall_count for one in played),
        max_idle_s_p99=_quantile(idles, 0.99),
        goodput_ratio=goodput_ratio(records, limits),
        goodput_tok_s=goodput_tok_s(records, limits, wall_s),
    )


def _quantile(values: list[float], q: float) -> float | None:
    return float(np.quantile(values, q)) if values else None
