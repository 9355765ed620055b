"""The record of one benchmark run: the keys of `sglang.bench_serving`, vLLM's names for the same, ours in `stream_`."""

import msgspec

from tokenflow.wire import Document


class BenchRun(msgspec.Struct, kw_only=True):
    """One run. Names without `stream_` are SGLang 0.5.23's or vLLM's and mean what they mean there (docs/loadgen.md).

    Latencies, `completed` and `total_output_tokens` are of complete requests. `duration` is in seconds, from the
    first request sent to the end of the last; throughputs are per second of it. Null: there is nothing to take it of.
    """

    tag: str | None
    backend: str
    dataset_name: str
    request_rate: float | str  # a number, "inf" for bursts, "trace"
    max_concurrency: int | None
    sharegpt_output_len: int | None
    random_input_len: int | None
    random_output_len: int | None
    random_range_ratio: float | None
    server_info: None  # not asked for: it holds the server's whole configuration
    duration: float
    completed: int
    total_input_tokens: int | None
    total_input_text_tokens: int | None
    total_input_vision_tokens: int
    total_output_tokens: int
    total_output_tokens_retokenized: int | None
    request_throughput: float
    input_throughput: float | None
    output_throughput: float
    total_throughput: float | None
    mean_e2e_latency_ms: float | None
    median_e2e_latency_ms: float | None
    std_e2e_latency_ms: float | None
    p90_e2e_latency_ms: float | None
    p95_e2e_latency_ms: float | None
    p99_e2e_latency_ms: float | None
    mean_ttft_ms: float | None
    median_ttft_ms: float | None
    std_ttft_ms: float | None
    p90_ttft_ms: float | None
    p95_ttft_ms: float | None
    p99_ttft_ms: float | None
    mean_tpot_ms: float | None
    median_tpot_ms: float | None
    std_tpot_ms: float | None
    p90_tpot_ms: float | None
    p95_tpot_ms: float | None
    p99_tpot_ms: float | None
    mean_itl_ms: float | None
    median_itl_ms: float | None
    std_itl_ms: float | None
    p90_itl_ms: float | None
    p95_itl_ms: float | None
    p99_itl_ms: float | None
    concurrency: float
    accept_length: float | None
    max_output_tokens_per_s: float
    max_concurrent_requests: int
    # With --goodput.
    goodput_slos_ms: dict[str, float] | None
    request_goodput: float | None
    slo_attainment: float | None
    slo_attainment_by_metric: dict[str, float] | None
    # vLLM's names.
    date: str
    model_id: str
    num_prompts: int
    burstiness: float | None
    failed: int
    total_token_throughput: float | None
    mean_e2el_ms: float | None
    median_e2el_ms: float | None
    std_e2el_ms: float | None
    p90_e2el_ms: float | None
    p95_e2el_ms: float | None
    p99_e2el_ms: float | None
    # Ours.
    stream_seed: int
    stream_arrivals: str
    stream_rates: str | None
    stream_is_interrupted: bool
    stream_sent_count: int
    stream_cancelled_count: int
    stream_outcomes: dict[str, int]
    stream_errors: dict[str, int]
    stream_received_tokens: int  # of all requests, failed ones too
    stream_max_itl_ms: float | None
    stream_effective_tok_s: float
    stream_effective_tok_s_author: float
    stream_qoe_mean: float | None
    stream_max_idle_s_p99: float | None
    stream_stall_s_total: float
    stream_stall_count: int
    stream_stalled_request_count: int
    stream_least_runway_s: float | None
    stream_dispatch_lag_p50_ms: float | None
    stream_dispatch_lag_p99_ms: float | None
    stream_dispatch_lag_max_ms: float | None
    stream_ack_count: int
    stream_failed_ack_count: int
    stream_unackable_count: int


class BenchDocument(Document, kw_only=True):
    """`tfctl bench --json`: one record a seed, in the order they were run."""

    runs: list[BenchRun]
