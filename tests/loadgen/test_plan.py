"""Arrivals, rates, prompts and plans: the same seed gives the same plan, bad notation one clear error."""

import itertools
import random
import subprocess
import sys
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenflow.errors import UsageError
from tokenflow.loadgen.arrivals import Burst, GammaProcess, parse_arrivals
from tokenflow.loadgen.plan import Workload, plan_streams
from tokenflow.loadgen.prompts import draw_prompts
from tokenflow.loadgen.rates import parse_rates

WORKLOAD = Workload(
    request_count=20, arrivals="poisson:4", rates="4:0.5,12:0.5", output_tokens="uniform:64:128", seed=7
)


def test_a_burst_arrives_at_once():
    assert parse_arrivals("burst:3").times_s(3, random.Random(0)) == [0.0, 0.0, 0.0]


def test_a_burst_with_a_gap_comes_in_groups():
    assert parse_arrivals("burst:2:1.5").times_s(5, random.Random(0)) == [0.0, 0.0, 1.5, 1.5, 3.0]


def test_a_burst_without_a_gap_is_the_whole_run():
    with pytest.raises(UsageError) as caught:
        parse_arrivals("burst:3").times_s(4, random.Random(0))
    assert "burst:4" in (caught.value.hint or "")


def test_poisson_gaps_have_the_mean_that_was_asked_for():
    times_s = parse_arrivals("poisson:4").times_s(4001, random.Random(1))
    assert times_s[0] == 0.0
    assert times_s == sorted(times_s)
    assert times_s[-1] / 4000 == pytest.approx(0.25, rel=0.05)


def test_a_small_gamma_shape_is_burstier_at_the_same_rate():
    def variation(text: str) -> float:
        times_s = parse_arrivals(text).times_s(4001, random.Random(1))
        gaps_s = [later - earlier for earlier, later in itertools.pairwise(times_s)]
        mean_s = sum(gaps_s) / len(gaps_s)
        assert mean_s == pytest.approx(0.25, rel=0.1)
        return (sum((gap_s - mean_s) ** 2 for gap_s in gaps_s) / len(gaps_s)) ** 0.5 / mean_s

    assert variation("gamma:4:0.25") == pytest.approx(2.0, rel=0.15)  # 1 / sqrt(shape)
    assert variation("gamma:4:1") == pytest.approx(1.0, rel=0.1)


def test_notations_are_read():
    assert parse_arrivals("burst:12") == Burst(12)
    assert parse_arrivals(" poisson:2.5 ") == GammaProcess(2.5)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "burst",
            "burst:",
            "burst:0",
            "burst:-1",
            "burst:2.5",
            "burst:x",
            "burst:2:0",
            "burst:2:nan",
            "burst:1:2:3",
        ),
        *(
            "poisson",
            "poisson:0",
            "poisson:-1",
            "poisson:inf",
            "poisson:nan",
            "poisson:x",
            "gamma:1",
            "gamma:1:0",
            "steady:1",
        ),
    ],
)
def test_unusable_arrivals_are_usage_errors_with_a_hint(text):
    with pytest.raises(UsageError) as caught:
        parse_arrivals(text)
    assert caught.value.hint
    assert caught.value.field == "arrivals"


def test_a_mix_is_met_exactly_where_whole_streams_allow():
    assigned = parse_rates("15:0.4,20:0.6").assign(10, random.Random(0))
    assert Counter(assigned) == {15.0: 4, 20.0: 6}


@given(
    shares=st.lists(st.floats(0.01, 100.0), min_size=1, max_size=8),
    count=st.integers(0, 200),
    seed=st.integers(0, 2**32),
)
def test_a_mix_is_met_within_one_stream(shares, count, seed):
    rates = [index + 1 for index in range(len(shares))]
    mix = parse_rates(",".join(f"{rate}:{share!r}" for rate, share in zip(rates, shares, strict=True)))
    counts = Counter(mix.assign(count, random.Random(seed)))
    assert sum(counts.values()) == count
    for rate, share in zip(rates, shares, strict=True):
        assert abs(counts[float(rate)] - count * share / sum(shares)) < 1.0 + 1e-6


def test_one_rate_is_a_mix_of_one():
    assert parse_rates("6").assign(3, random.Random(0)) == [6.0, 6.0, 6.0]


@pytest.mark.parametrize(
    "text",
    ["", "0", "-1", "nan", "inf", "1e9", "0.09", "10001", "x", "4:", "4:0", "4:-1", "4:nan", "4:inf", "4,", "4;5"],
)
def test_unusable_rates_are_usage_errors_with_a_hint(text):
    with pytest.raises(UsageError) as caught:
        parse_rates(text)
    assert caught.value.hint
    assert caught.value.field == "rates"


def test_prompts_do_not_repeat_before_all_were_used():
    prompts = draw_prompts(200, random.Random(3))
    assert len(set(prompts)) == 200
    assert all(10 < len(prompt) < 200 for prompt in prompts)
    assert len(draw_prompts(1000, random.Random(3))) == 1000


def test_the_same_seed_gives_the_same_plan():
    assert plan_streams(WORKLOAD) == plan_streams(WORKLOAD)


def test_the_same_seed_gives_the_same_plan_in_another_process():
    code = (
        "import sys, msgspec; from tokenflow.loadgen.plan import Workload, plan_streams; "
        "workload = msgspec.json.decode(sys.argv[1], type=Workload); "
        "sys.stdout.buffer.write(msgspec.json.encode(plan_streams(workload)))"
    )
    command = [sys.executable, "-c", code, msgspec.json.encode(WORKLOAD).decode()]
    output = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    assert output == msgspec.json.encode(plan_streams(WORKLOAD))


def test_another_seed_gives_another_plan():
    other = plan_streams(msgspec.structs.replace(WORKLOAD, seed=8))
    plan = plan_streams(WORKLOAD)
    for subject in ("arrival_s", "prompt", "rate_tok_s", "max_tokens"):
        assert [getattr(stream, subject) for stream in plan] != [getattr(stream, subject) for stream in other], subject


def test_a_change_of_rates_moves_nothing_else():
    other = plan_streams(msgspec.structs.replace(WORKLOAD, rates="9"))
    assert [msgspec.structs.replace(stream, rate_tok_s=9.0) for stream in plan_streams(WORKLOAD)] == other


def test_lengths_stay_in_their_range():
    lengths = {stream.max_tokens for stream in plan_streams(msgspec.structs.replace(WORKLOAD, request_count=500))}
    assert min(lengths) == 64
    assert max(lengths) == 128


@pytest.mark.parametrize(
    "change", [{"request_count": 0}, {"output_tokens": "uniform:0:128"}, {"output_tokens": "uniform:129:128"}]
)
def test_a_workload_that_makes_no_sense_is_a_usage_error(change):
    with pytest.raises(UsageError):
        plan_streams(msgspec.structs.replace(WORKLOAD, **change))
