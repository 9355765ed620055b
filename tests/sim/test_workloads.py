"""Workloads without prompts: the laws of the load generator, and the same draws for the same seed."""

import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from tokenflow.errors import UsageError
from tokenflow.loadgen.plan import Workload, plan_streams
from tokenflow.sim.workloads import WorkloadSpec, make_requests


def spec(**changes) -> WorkloadSpec:
    values = {
        "arrivals": "poisson:4",
        "input_tokens": "normal:512",
        "output_tokens": "normal:1024",
        "request_count": 60,
    }
    return WorkloadSpec(**(values | {"rates": "15:0.4,20:0.6"} | changes))


@pytest.fixture
def trace(tmp_path) -> Path:
    path = tmp_path / "trace.csv"
    rows = "\n".join(f"{index * 2.0},{100 + index},{10 + index}" for index in range(20))
    path.write_text(f"arrival_s,input_tokens,output_tokens\n{rows}\n")
    return path


@pytest.mark.parametrize("arrivals", ["poisson:4", "gamma:4:0.25", "burst:20:3"])
def test_a_seed_means_the_same_streams_in_bench_and_simulate(arrivals):
    asked = make_requests(spec(arrivals=arrivals), seed=7)
    sent = plan_streams(
        Workload(
            request_count=60, arrivals=arrivals, rates="15:0.4,20:0.6", input_tokens="normal:512",
            output_tokens="normal:1024", seed=7,
        )
    )  # fmt: skip
    assert [(one.arrival_s, one.rate_tok_s, one.output_tokens) for one in asked] == [
        (one.arrival_s, one.rate_tok_s, one.max_tokens) for one in sent
    ]


def test_seeds_differ_and_repeat():
    assert make_requests(spec(), 1) == make_requests(spec(), 1)
    assert make_requests(spec(), 1) != make_requests(spec(), 2)


def test_the_laws_come_out():
    asked = make_requests(spec(request_count=4000), 3)
    assert asked[-1].arrival_s == pytest.approx(1000.0, rel=0.06)
    assert statistics.fmean(one.prompt_tokens for one in asked) == pytest.approx(512, rel=0.02)
    assert statistics.pstdev(one.output_tokens for one in asked) == pytest.approx(256, rel=0.05)
    assert sum(one.rate_tok_s == 15.0 for one in asked) == 1600
    gaps = [after.arrival_s - before.arrival_s for before, after in pairwise(asked)]
    assert statistics.pstdev(gaps) / statistics.fmean(gaps) == pytest.approx(1.0, abs=0.06)


def test_a_gamma_shape_is_burstier_by_its_square_root():
    asked = make_requests(spec(arrivals="gamma:4:0.25", request_count=6000), 3)
    gaps = [after.arrival_s - before.arrival_s for before, after in pairwise(asked)]
    assert statistics.pstdev(gaps) / statistics.fmean(gaps) == pytest.approx(2.0, abs=0.15)


def test_nobody_reads_along_without_rates():
    assert {one.rate_tok_s for one in make_requests(spec(rates=None), 1)} == {None}


def test_a_trace_gives_its_own_arrivals_and_lengths(trace):
    recorded = spec(
        arrivals=f"trace:{trace}", input_tokens="trace", output_tokens="trace", request_count=None, speedup=4.0
    )
    asked = make_requests(recorded, 1)
    assert [one.arrival_s for one in asked] == [index * 0.5 for index in range(20)]
    assert [(one.prompt_tokens, one.output_tokens) for one in asked] == [(100 + i, 10 + i) for i in range(20)]


def test_lengths_of_a_trace_behind_other_arrivals_keep_their_pairs(trace):
    asked = make_requests(spec(input_tokens=f"trace:{trace}", output_tokens=f"trace:{trace}"), 5)
    assert len(asked) == 60
    assert {one.prompt_tokens - one.output_tokens for one in asked} == {90}
    assert len({one.prompt_tokens for one in asked}) > 10


def test_a_burst_holds_its_own_number():
    asked = make_requests(spec(arrivals="burst:60", request_count=None), 1)
    assert [one.arrival_s for one in asked] == [0.0] * 60


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"request_count": None}, "requests"),
        ({"request_count": 0}, "requests"),
        ({"arrivals": "sometimes"}, "arrivals"),
        ({"input_tokens": "long"}, "input-tokens"),
        ({"output_tokens": "trace"}, "output-tokens"),
        ({"output_tokens": "trace:/nowhere.csv"}, "arrivals"),
        ({"rates": "0"}, "rates"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_option_to_mend(changes, field):
    with pytest.raises(UsageError) as caught:
        make_requests(spec(**changes), 1)
    assert caught.value.field == field
    assert caught.value.hint


def test_schedulers_may_be_told_what_clients_ask_for_and_not_how_long_answers_are():
    told = make_requests(spec(output_tokens="uniform:50:150", max_tokens=100), 1)
    true = make_requests(spec(output_tokens="uniform:50:150"), 1)
    assert {request.output_tokens > 100 for request in told} == {True, False}
    assert all(request.max_tokens == max(100, request.output_tokens) for request in told)
    assert [one.output_tokens for one in told] == [one.output_tokens for one in true]
