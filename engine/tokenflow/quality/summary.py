"""Everything about a run in one place, for the benchmarks, the simulator and the load generator."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenflow.quality.goodput import GoodputLimits
from tokenflow.quality.record import StreamRecord
from tokenflow.quality.stream_figures import StreamFigures, figures_of


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
    return combine([figures_of(record, ttft_target_s=ttft_target_s, limits=limits) for record in records])


def combine(streams: Sequence[StreamFigures]) -> QualitySummary:
    """The same from figures that were taken stream by stream."""
    ends_s = [one.end_s for one in streams if one.end_s is not None]
    wall_s = max(ends_s) - min(one.arrival_s for one in streams) if ends_s else 0.0
    ttfts = [one.ttft_s for one in streams if one.ttft_s is not None]
    read = [one for one in streams if one.has_reader]
    qoes = [one.qoe for one in read if one.qoe is not None]
    idles = [one.max_idle_s for one in read if one.max_idle_s is not None]
    per_s = 1.0 / wall_s if wall_s > 0 else 0.0
    effective = sum(one.effective_tokens for one in read)
    stall_s = sum(one.stall_s for one in read)
    # Equation 2 of the paper with its λ and μ at 1 (docs/metrics.md).
    qos = effective - sum(one.ttft_s for one in read if one.ttft_s is not None) - stall_s
    return QualitySummary(
        request_count=len(streams),
        started_count=len(ttfts),
        wall_s=wall_s,
        ttft_mean_s=float(np.mean(ttfts)) if ttfts else None,
        ttft_p50_s=_quantile(ttfts, 0.5),
        ttft_p99_s=_quantile(ttfts, 0.99),
        raw_tok_s=sum(one.token_count for one in streams) * per_s,
        effective_tok_s=effective * per_s,
        effective_tok_s_author=sum(one.author_score for one in read) * per_s,
        qos=qos * per_s,
        qoe_mean=float(np.mean(qoes)) if qoes else None,
        stall_s_total=stall_s,
        stall_count=sum(one.stall_count for one in read),
        max_idle_s_p99=_quantile(idles, 0.99),
        goodput_ratio=sum(one.is_good for one in streams) / len(streams) if streams else 0.0,
        goodput_tok_s=sum(one.token_count for one in streams if one.is_good) * per_s,
    )


def _quantile(values: list[float], q: float) -> float | None:
    return float(np.quantile(values, q)) if values else None
