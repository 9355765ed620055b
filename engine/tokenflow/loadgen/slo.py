"""Limits that a good request keeps: `ttft:500,tbt:200`, in milliseconds."""

import re
from enum import StrEnum

from tokenflow.errors import UsageError
from tokenflow.loadgen.result import StreamResult

_PART = re.compile(r"([a-z0-9]+):(\d+(?:\.\d+)?)")
_ROUNDING_MS = 1e-6


class SloMetric(StrEnum):
    """What can be limited; the first three as `sglang.bench_serving` and `vllm bench` define them."""

    TTFT = "ttft"  # from sending to the first token
    TPOT = "tpot"  # mean time of a token after the first; 0 for a reply of one token
    E2EL = "e2el"  # from sending to the end
    TBT = "tbt"  # the longest gap between two tokens; 0 for a reply of one token


def parse_slos(text: str) -> dict[SloMetric, float]:
    """Limits in milliseconds, in the order given; commas or spaces between them. Raises UsageError."""
    limits_ms: dict[SloMetric, float] = {}
    for part in text.replace(",", " ").split():
        match = _PART.fullmatch(part)
        metric = match[1] if match else ""
        if not match or metric not in list(SloMetric) or SloMetric(metric) in limits_ms:
            raise UsageError(
                f"{part!r} in {text!r} is not a limit",
                hint=f"use {', '.join(f'{metric}:MS' for metric in SloMetric)}, each once, such as ttft:500,tbt:200",
                field="goodput",
            )
        limits_ms[SloMetric(metric)] = float(match[2])
    if not limits_ms:
        raise UsageError("no limit is given", hint="such as ttft:500,tbt:200", field="goodput")
    return limits_ms


def observed_ms(stream: StreamResult, metric: SloMetric) -> float:
    """Of a complete stream."""
    assert stream.ttft_s is not None
    assert stream.duration_s is not None
    match metric:
        case SloMetric.TTFT:
            seconds = stream.ttft_s
        case SloMetric.TPOT:
            seconds = stream.tpot_s or 0.0
        case SloMetric.E2EL:
            seconds = stream.duration_s
        case SloMetric.TBT:
            seconds = max(stream.gaps_s, default=0.0)
    return seconds * 1e3


def met(stream: StreamResult, limits_ms: dict[SloMetric, float]) -> set[SloMetric]:
    """The limits that a stream kept; none for one that is not complete."""
    if not stream.is_complete:
        return set()
    return {metric for metric, limit in limits_ms.items() if observed_ms(stream, metric) <= limit + _ROUNDING_MS}
