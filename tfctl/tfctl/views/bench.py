"""A benchmark's record for people."""

from tfctl.output import Look, Role
from tokenflow.loadgen.bench_record import BenchRun

_COLUMNS = ("mean", "median", "std", "p90", "p95", "p99")
_ROWS = (("TTFT ms", "ttft"), ("TPOT ms", "tpot"), ("ITL ms", "itl"), ("E2E ms", "e2e_latency"))


def render_run(run: BenchRun, look: Look) -> list[str]:
    """One block of lines, at most 80 columns wide but for long laws."""
    is_whole = run.completed == run.num_prompts
    outcome = look.paint(f"{run.completed} of {run.num_prompts} requests complete", Role.GOOD if is_whole else Role.BAD)
    interrupted = look.paint(", interrupted", Role.WARN) if run.stream_is_interrupted else ""
    lines = [
        f"seed {run.stream_seed}: {outcome} in {run.duration:.1f} s, {run.failed} failed{interrupted}",
        f"{run.model_id}, arrivals {run.stream_arrivals}, read at {run.stream_rates or 'no'} tok/s",
        look.paint(f"{'':<8}" + "".join(f"{name:>10}" for name in _COLUMNS), Role.FAINT),
    ]
    for title, name in _ROWS:
        cells = [_number(getattr(run, f"{kind}_{name}_ms"), look) for kind in _COLUMNS]
        lines.append(f"{title:<8}" + "".join(f"{cell:>10}" for cell in cells))
    lines += [
        f"output: {run.output_throughput:.1f} tok/s, {run.stream_effective_tok_s:.1f} effective; "
        f"{run.max_output_tokens_per_s:.0f} tokens in the fullest second",
        f"requests: {run.request_throughput:.2f} /s; {run.max_concurrent_requests} open at once at most",
    ]
    if run.stream_rates is not None:
        lines.append(
            f"readers: {run.stream_stalled_request_count} of {run.stream_sent_count} stalled, "
            f"{run.stream_stall_count} times, {run.stream_stall_s_total:.1f} s in all; "
            f"QoE {_number(run.stream_qoe_mean, look, 3)}"
        )
    lines += _goodput(run, look)
    lines.append(
        f"sent late by (ms): p50 {_number(run.stream_dispatch_lag_p50_ms, look)}, "
        f"p99 {_number(run.stream_dispatch_lag_p99_ms, look)}, max {_number(run.stream_dispatch_lag_max_ms, look)}"
    )
    if run.stream_ack_count or run.stream_failed_ack_count:
        lines.append(f"acks: {run.stream_ack_count} taken, {run.stream_failed_ack_count} not")
    return lines


def error_lines(run: BenchRun) -> list[str]:
    """What went wrong and how often, most frequent first."""
    lines = [f"  {count} × {message}" for message, count in run.stream_errors.items()]
    silent_count = run.stream_outcomes.get("completed", 0) - run.completed
    return lines + ([f"  {silent_count} × ended without a token"] if silent_count else [])


def _goodput(run: BenchRun, look: Look) -> list[str]:
    if run.goodput_slos_ms is None:
        return []
    limits = " ".join(f"{name}:{limit:g}" for name, limit in run.goodput_slos_ms.items())
    if run.slo_attainment is None or run.slo_attainment_by_metric is None:
        return [f"goodput: {limits}: nothing was sent"]
    parts = ", ".join(f"{name} {ratio:.1%}" for name, ratio in run.slo_attainment_by_metric.items())
    per_s = _number(run.request_goodput, look, 2)
    return [f"goodput: {limits} kept by {run.slo_attainment:.1%} ({parts}); {per_s} requests/s"]


def _number(value: float | None, look: Look, digits: int = 1) -> str:
    return ("–" if look.unicode else "-") if value is None else f"{value:.{digits}f}"
