"""Histograms against a count by hand, and counters over the wire."""

import bisect
import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tokenflow import link
from tokenflow.counters import RUNWAY_BOUNDS_S, Counters, Direction, Histogram
from tokenflow.policy.states import Reason

VALUES = st.lists(st.floats(-1.0, 1e4), max_size=50)


@given(VALUES)
def test_every_observation_is_at_or_below_the_bound_of_its_bucket(values):
    histogram = Histogram.of(RUNWAY_BOUNDS_S)
    for value in values:
        histogram.observe(value)
    ordered = sorted(values)
    for bound, total in histogram.cumulative():
        assert total == bisect.bisect_right(ordered, bound)
    assert histogram.count == len(values)
    assert math.isclose(histogram.sum, math.fsum(values), abs_tol=1e-6)


def test_what_is_not_a_number_is_dropped():
    histogram = Histogram.of((1.0,))
    histogram.observe(float("nan"))
    assert (histogram.count, histogram.sum) == (0, 0.0)
    histogram.observe(float("inf"))
    assert histogram.counts == [0, 1]


def filled() -> Counters:
    counters = Counters()
    counters.add_tokens("reading", 3)
    counters.add_tokens("reading", 4)
    counters.add_preemption("reading", Reason.PREEMPTED_SURPLUS)
    counters.observe_ttft("agent", 0.3)
    counters.observe_transfer(Direction.H2D, 0.002)
    return counters


def test_counters_come_back_from_the_wire_as_they_were():
    counters = filled()
    assert counters.generated_tokens == {"reading": 7}
    assert counters.transition_s["load"].count == 1
    assert msgspec.msgpack.decode(link.encode(counters), type=Counters) == counters


def test_two_engines_share_no_counts():
    filled()
    assert Counters().generated_tokens == {}
    assert Counters().decision_s.count == 0


def test_a_newer_plugin_may_count_more_and_name_what_nobody_knows():
    body = msgspec.to_builtins(filled())
    body["preemptions"]["reading"]["preempted_by_the_moon"] = 1
    body["new_counter"] = {"reading": 1}
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(body), type=Counters)
    assert read.preemptions["reading"] == {"preempted_surplus": 1, "preempted_by_the_moon": 1}
