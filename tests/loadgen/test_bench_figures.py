"""The record of a run: every figure worked out by hand, and the keys that other tools' readers look for."""

import ast
import importlib.util
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenflow.errors import UsageError
from tokenflow.loadgen.bench_figures import RunFacts, bench_run, details
from tokenflow.loadgen.bench_record import BenchRun
from tokenflow.loadgen.result import Outcome, StreamResult
from tokenflow.loadgen.slo import SloMetric, parse_slos

NOW = datetime(2026, 1, 2, 3, 4, 5)
FACTS = RunFacts(
    model="m",
    seed=3,
    arrivals="poisson:2",
    rates="10",
    backend="openai-chat",
    dataset_name="builtin",
    request_rate=2.0,
    burstiness=1.0,
    request_count=5,
    slos_ms=parse_slos("ttft:500,tbt:2000"),
)


def stream(index: int, sent_s: float | None, times_s: list[float], duration_s: float | None, **more) -> StreamResult:
    return StreamResult(
        index=index,
        outcome=more.pop("outcome", Outcome.COMPLETED),
        rate_tok_s=10.0,
        token_count=len(times_s),
        sent_s=sent_s,
        dispatch_lag_s=None if sent_s is None else 0.01 * index,
        ttft_s=times_s[0] - sent_s if times_s and sent_s is not None else None,
        duration_s=duration_s,
        token_times_s=times_s,
        **more,
    )


STREAMS = [
    # TTFT 0.5, three tokens, 4.0 s in all: TPOT (4 - 0.5) / 2; the last two came together, so one gap of 3 s.
    stream(0, 0.0, [0.5, 3.5, 3.5], 4.0, prompt_tokens=10, stall_s=2.9, stall_count=1, ack_count=2),
    # One token: no TPOT, no gap.
    stream(1, 1.0, [2.0], 1.5, prompt_tokens=20, least_runway_s=0.25),
    # Two tokens and within both limits.
    stream(2, 4.0, [4.25, 5.25], 2.0, prompt_tokens=30),
    stream(3, 2.0, [2.5], 8.0, outcome=Outcome.FAILED, error="stopped", failed_ack_count=1),
    stream(4, None, [], None, outcome=Outcome.CANCELLED),
]


def record(streams=STREAMS, facts=FACTS) -> BenchRun:
    return bench_run(streams, facts, NOW)


def test_counts_and_throughput():
    run = record()
    assert (run.completed, run.failed, run.num_prompts) == (3, 1, 5)
    assert (run.stream_sent_count, run.stream_cancelled_count) == (4, 1)
    assert run.duration == 10.0  # from 0 to the end of the failed stream at 2 + 8
    assert run.total_output_tokens == 6
    assert run.stream_received_tokens == 7
    assert run.total_input_tokens == run.total_input_text_tokens == 60
    assert run.output_throughput == pytest.approx(0.6)
    assert run.input_throughput == pytest.approx(6.0)
    assert run.total_throughput == run.total_token_throughput == pytest.approx(6.6)
    assert run.request_throughput == pytest.approx(0.3)
    assert run.concurrency == pytest.approx((4.0 + 1.5 + 2.0) / 10)
    assert run.max_output_tokens_per_s == 2.0  # second 3 holds two tokens
    assert run.max_concurrent_requests == 3  # 0 to 4, 1 to 2.5 and 2 to 10; the third of them begins as the first ends


def test_latencies_in_milliseconds():
    run = record()
    assert run.mean_ttft_ms == pytest.approx((500 + 1000 + 250) / 3)
    assert run.median_ttft_ms == pytest.approx(500)
    assert run.p90_ttft_ms == pytest.approx(900)  # linear between 500 and 1000, at 1.8 of 2
    assert run.mean_tpot_ms == pytest.approx((1750 + 1750) / 2)
    assert run.std_tpot_ms == pytest.approx(0)
    assert run.mean_itl_ms == pytest.approx((3000 + 1000) / 2)
    assert run.stream_max_itl_ms == pytest.approx(3000)
    assert run.mean_e2e_latency_ms == run.mean_e2el_ms == pytest.approx(2500)
    assert run.p99_e2e_latency_ms == run.p99_e2el_ms == pytest.approx(3960)


def test_goodput_is_over_the_requests_sent():
    run = record()
    assert run.goodput_slos_ms == {"ttft": 500.0, "tbt": 2000.0}
    assert run.slo_attainment_by_metric == {"ttft": 0.5, "tbt": 0.5}
    assert run.slo_attainment == 0.25  # the third alone keeps both
    assert run.request_goodput == pytest.approx(0.1)
    without = record(facts=msgspec.structs.replace(FACTS, slos_ms=None))
    assert without.goodput_slos_ms is None
    assert without.slo_attainment is None


def test_readers_lags_and_errors():
    run = record()
    assert run.stream_stall_s_total == 2.9
    assert (run.stream_stall_count, run.stream_stalled_request_count) == (1, 1)
    assert run.stream_least_runway_s == 0.25
    assert run.stream_dispatch_lag_max_ms == pytest.approx(30)
    assert run.stream_dispatch_lag_p50_ms == pytest.approx(15)
    assert run.stream_outcomes == {"completed": 3, "failed": 1, "cancelled": 1}
    assert run.stream_errors == {"failed: stopped": 1}
    assert (run.stream_ack_count, run.stream_failed_ack_count) == (2, 1)
    assert run.date == "20260102-030405"


def test_a_server_that_counts_no_prompt_leaves_the_input_unknown():
    run = record([STREAMS[0], stream(1, 1.0, [2.0], 1.5)])
    assert run.total_input_tokens is None
    assert run.input_throughput is None
    assert run.total_throughput is None
    assert run.output_throughput > 0


@pytest.mark.parametrize("streams", [[], [STREAMS[4]], [STREAMS[3]]])
def test_a_run_without_a_complete_request_is_a_record_all_the_same(streams):
    run = record(streams)
    assert run.completed == 0
    assert run.mean_ttft_ms is None
    assert run.mean_e2el_ms is None
    assert b"NaN" not in msgspec.json.encode(run)
    assert details(streams)["output_lens"] == [0] * len(streams)


def test_the_lists_have_an_entry_a_request():
    lists = details(STREAMS)
    assert {len(values) for values in lists.values()} == {5}
    assert lists["itls"] == [[3.0], [], [1.0], [], []]
    assert lists["start_times"] == [0.0, 1.0, 4.0, 2.0, None]


@pytest.mark.parametrize("text", ["", "ttft", "ttft:x", "ttft:-1", "tpob:3", "ttft:1,ttft:2", "e2e:1"])
def test_unusable_limits(text):
    with pytest.raises(UsageError) as caught:
        parse_slos(text)
    assert caught.value.hint


def test_limits_may_be_parted_by_commas_or_spaces():
    assert parse_slos("ttft:500 tbt:200.5") == parse_slos("ttft:500,tbt:200.5")
    assert list(parse_slos("e2el:1,tpot:2")) == [SloMetric.E2EL, SloMetric.TPOT]


def test_every_key_of_the_installed_bench_serving_is_there():
    spec = importlib.util.find_spec("sglang")
    if spec is None or spec.origin is None:
        pytest.skip("SGLang is not installed here: its keys cannot be read from its source")
    path = Path(spec.origin).parent / "benchmark" / "serving.py"
    keys: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        is_result = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "result"
        if is_result and isinstance(node.value, ast.Dict):
            keys |= {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
    assert {"tag", "mean_ttft_ms", "max_concurrent_requests"} <= keys, "the source is not what it was"
    assert keys <= set(BenchRun.__struct_fields__)
    detail_keys = {"input_lens", "output_lens", "ttfts", "itls", "errors"}
    assert detail_keys <= set(details(STREAMS))


@st.composite
def any_stream(draw, index: int = 0) -> StreamResult:
    moments_s = st.integers(0, 10**10).map(lambda count: count / 1e9)  # clocks tick in nanoseconds
    sent_s = draw(st.none() | moments_s)
    if sent_s is None:
        return stream(index, None, [], None, outcome=Outcome.CANCELLED)
    gaps_s = draw(st.lists(moments_s, max_size=8))
    times_s = [sent_s + sum(gaps_s[: count + 1]) for count in range(len(gaps_s))]
    duration_s = sum(gaps_s) + draw(moments_s)
    outcome = draw(st.sampled_from(list(Outcome)))
    error = None if outcome is Outcome.COMPLETED else draw(st.sampled_from([None, "one", "other"]))
    prompt_tokens = draw(st.none() | st.integers(0, 100))
    return stream(index, sent_s, times_s, duration_s, outcome=outcome, error=error, prompt_tokens=prompt_tokens)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(streams=st.lists(any_stream(), max_size=8))
def test_any_run_makes_a_record_whose_counts_add_up(streams):
    run = record(streams, msgspec.structs.replace(FACTS, request_count=len(streams)))
    assert run.completed + run.failed + run.stream_cancelled_count == run.num_prompts == len(streams)
    assert sum(run.stream_outcomes.values()) == len(streams)
    assert run.stream_received_tokens >= run.total_output_tokens >= run.completed
    assert 0 <= run.max_concurrent_requests <= run.stream_sent_count
    assert run.slo_attainment is None or 0 <= run.slo_attainment <= 1
    encoded = msgspec.json.encode(run)
    assert b"NaN" not in encoded
    assert msgspec.json.decode(encoded, type=BenchRun) == run
