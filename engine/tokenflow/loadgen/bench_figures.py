"""From what the clients saw to the record of a run."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec
import numpy as np

from tokenflow.loadgen.bench_record import BenchRun
from tokenflow.loadgen.result import Outcome, StreamResult
from tokenflow.loadgen.slo import SloMetric, met
from tokenflow.quality.record import StreamRecord
from tokenflow.quality.summary import summarise

_ERROR_KINDS = 20  # as many different messages are kept


class RunFacts(msgspec.Struct, kw_only=True, frozen=True):
    """What was asked for; goes into the record as it is."""

    model: str
    seed: int
    arrivals: str
    rates: str | None
    backend: str
    dataset_name: str
    request_rate: float | str
    burstiness: float | None
    request_count: int
    mean_input_tokens: int | None = None
    mean_output_tokens: int | None = None
    tag: str | None = None
    slos_ms: dict[SloMetric, float] | None = None
    is_interrupted: bool = False
    unackable_count: int = 0


def bench_run(streams: Sequence[StreamResult], facts: RunFacts, now: datetime) -> BenchRun:
    """The record. Streams that were never sent count in `num_prompts` and `stream_cancelled_count` alone."""
    sent = [stream for stream in streams if stream.sent_s is not None]
    complete = [stream for stream in sent if stream.is_complete]
    duration_s = _duration_s(sent)
    output_tokens = sum(stream.token_count for stream in complete)
    prompt_tokens = [stream.prompt_tokens for stream in complete]
    input_tokens = sum(filter(None, prompt_tokens)) if None not in prompt_tokens else None
    all_tokens = None if input_tokens is None else input_tokens + output_tokens
    latencies = _spread("e2e_latency", [stream.duration_s for stream in complete])
    itls_s = [gap_s for stream in complete for gap_s in stream.gaps_s]
    cancelled_count = sum(stream.outcome is Outcome.CANCELLED for stream in streams)
    figures: dict[str, object] = {
        "tag": facts.tag,
        "backend": facts.backend,
        "dataset_name": facts.dataset_name,
        "request_rate": facts.request_rate,
        "max_concurrency": None,
        "sharegpt_output_len": None,
        "random_input_len": facts.mean_input_tokens,
        "random_output_len": facts.mean_output_tokens,
        "random_range_ratio": None,
        "server_info": None,
        "duration": duration_s,
        "completed": len(complete),
        "total_input_tokens": input_tokens,
        "total_input_text_tokens": input_tokens,
        "total_input_vision_tokens": 0,
        "total_output_tokens": output_tokens,
        "total_output_tokens_retokenized": None,
        "request_throughput": _per_s(len(complete), duration_s),
        "input_throughput": None if input_tokens is None else _per_s(input_tokens, duration_s),
        "output_throughput": _per_s(output_tokens, duration_s),
        "total_throughput": None if all_tokens is None else _per_s(all_tokens, duration_s),
        **latencies,
        **_spread("ttft", [stream.ttft_s for stream in complete]),
        **_spread("tpot", [stream.tpot_s for stream in complete]),
        **_spread("itl", itls_s),
        "concurrency": _per_s(sum(stream.duration_s or 0.0 for stream in complete), duration_s),
        "accept_length": None,
        "max_output_tokens_per_s": _peak_tok_s(complete),
        "max_concurrent_requests": _peak_concurrency(sent),
        **_goodput(sent, duration_s, facts.slos_ms),
        "date": now.strftime("%Y%m%d-%H%M%S"),
        "model_id": facts.model,
        "num_prompts": facts.request_count,
        "burstiness": facts.burstiness,
        "failed": len(streams) - len(complete) - cancelled_count,
        "total_token_throughput": None if all_tokens is None else _per_s(all_tokens, duration_s),
        **{key.replace("e2e_latency", "e2el"): value for key, value in latencies.items()},
        "stream_seed": facts.seed,
        "stream_arrivals": facts.arrivals,
        "stream_rates": facts.rates,
        "stream_is_interrupted": facts.is_interrupted,
        "stream_sent_count": len(sent),
        "stream_cancelled_count": cancelled_count,
        "stream_max_itl_ms": max(itls_s) * 1e3 if itls_s else None,
        "stream_unackable_count": facts.unackable_count,
        **_readers(streams, sent),
    }
    return msgspec.convert(figures, BenchRun)


def details(streams: Sequence[StreamResult]) -> dict[str, object]:
    """The lists of `--output-details`, one entry a request: SGLang's names, then vLLM's. Seconds."""
    return {
        "input_lens": [stream.prompt_tokens for stream in streams],
        "output_lens": [stream.token_count if stream.is_complete else 0 for stream in streams],
        "ttfts": [stream.ttft_s for stream in streams],
        "itls": [stream.gaps_s for stream in streams],
        "errors": [stream.error or "" for stream in streams],
        "start_times": [stream.sent_s for stream in streams],
        "latencies": [stream.duration_s for stream in streams],
    }


def _readers(streams: Sequence[StreamResult], sent: Sequence[StreamResult]) -> dict[str, object]:
    """What the readers had of it, and how the streams ended."""
    records = [StreamRecord.of(stream.sent_s or 0.0, stream.token_times_s, stream.rate_tok_s) for stream in sent]
    quality = summarise(records)
    lags_ms = [stream.dispatch_lag_s * 1e3 for stream in sent if stream.dispatch_lag_s is not None]
    errors = Counter(f"{stream.outcome}: {stream.error}" for stream in streams if stream.error is not None)
    runways_s = [stream.least_runway_s for stream in sent if stream.least_runway_s is not None]
    return {
        "stream_outcomes": dict(Counter(stream.outcome.value for stream in streams)),
        "stream_errors": dict(errors.most_common(_ERROR_KINDS)),
        "stream_received_tokens": sum(stream.token_count for stream in sent),
        "stream_effective_tok_s": quality.effective_tok_s,
        "stream_effective_tok_s_author": quality.effective_tok_s_author,
        "stream_qoe_mean": quality.qoe_mean,
        "stream_max_idle_s_p99": quality.max_idle_s_p99,
        "stream_stall_s_total": sum(stream.stall_s for stream in sent),
        "stream_stall_count": sum(stream.stall_count for stream in sent),
        "stream_stalled_request_count": sum(stream.stall_count > 0 for stream in sent),
        "stream_least_runway_s": min(runways_s, default=None),
        "stream_dispatch_lag_p50_ms": float(np.percentile(lags_ms, 50)) if lags_ms else None,
        "stream_dispatch_lag_p99_ms": float(np.percentile(lags_ms, 99)) if lags_ms else None,
        "stream_dispatch_lag_max_ms": max(lags_ms, default=None),
        "stream_ack_count": sum(stream.ack_count for stream in sent),
        "stream_failed_ack_count": sum(stream.failed_ack_count for stream in sent),
    }


def _goodput(
    sent: Sequence[StreamResult], duration_s: float, limits_ms: dict[SloMetric, float] | None
) -> dict[str, object]:
    """Attainment is over the requests sent."""
    keys = ("goodput_slos_ms", "request_goodput", "slo_attainment", "slo_attainment_by_metric")
    if limits_ms is None:
        return dict.fromkeys(keys)
    kept = [met(stream, limits_ms) for stream in sent]
    good_count = sum(len(one) == len(limits_ms) for one in kept)
    by_metric = {metric.value: sum(metric in one for one in kept) / len(sent) if sent else None for metric in limits_ms}
    values = (
        {metric.value: limit for metric, limit in limits_ms.items()},
        _per_s(good_count, duration_s),
        good_count / len(sent) if sent else None,
        by_metric if sent else None,
    )
    return dict(zip(keys, values, strict=True))


def _spread(name: str, values_s: Sequence[float | None]) -> dict[str, float | None]:
    """Mean, median, deviation and percentiles in milliseconds under SGLang's names."""
    values_ms = [value * 1e3 for value in values_s if value is not None]
    kinds = ("mean", "median", "std", "p90", "p95", "p99")
    if not values_ms:
        return {f"{kind}_{name}_ms": None for kind in kinds}
    figures = (np.mean(values_ms), np.median(values_ms), np.std(values_ms), *np.percentile(values_ms, [90, 95, 99]))
    return {f"{kind}_{name}_ms": float(figure) for kind, figure in zip(kinds, figures, strict=True)}


def _duration_s(sent: Sequence[StreamResult]) -> float:
    """From the first request sent to the end of the last one."""
    ends_s = [_end_s(stream) for stream in sent]
    return max(ends_s) - min(stream.sent_s or 0.0 for stream in sent) if sent else 0.0


def _end_s(stream: StreamResult) -> float:
    assert stream.sent_s is not None
    return stream.sent_s + (stream.duration_s or 0.0)


def _per_s(amount: float, duration_s: float) -> float:
    return amount / duration_s if duration_s > 0.0 else 0.0


def _peak_tok_s(complete: Sequence[StreamResult]) -> float:
    """Tokens in the fullest second, counted from the first request sent."""
    times_s = [time_s for stream in complete for time_s in stream.token_times_s]
    if not times_s:
        return 0.0
    start_s = min(stream.sent_s or 0.0 for stream in complete)
    return float(np.bincount(np.floor(np.asarray(times_s) - start_s).astype(int)).max())


def _peak_concurrency(sent: Sequence[StreamResult]) -> int:
    """The most requests that were open at one moment; one that ends as another begins does not overlap it."""
    edges = sorted([(stream.sent_s or 0.0, 1) for stream in sent] + [(_end_s(stream), -1) for stream in sent])
    open_count = most = 0
    for _, change in edges:
        open_count += change
        most = max(most, open_count)
    return most
