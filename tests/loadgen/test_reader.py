"""The paced reader against cases worked out by hand, and against what must hold for every stream."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenflow.loadgen.reader import PacedReader


def test_a_smooth_stream():
    """Ten tokens at once, read at 5 tok/s from second 1; ten more at second 2, when five are unread: 1 s of runway."""
    reader = PacedReader(5.0)
    reader.arrive(1.0, 10)
    reader.arrive(2.0, 20)
    reader.end(2.0)
    assert reader.least_runway_s == pytest.approx(1.0)
    assert reader.stall_count == 0
    assert reader.stall_s == 0.0
    assert reader.read_tokens == pytest.approx(5.0)


def test_a_stream_that_runs_dry_twice():
    """Two tokens at 4 tok/s last 0.5 s: dry from 0.5 to 1.0; four last to 2.0: dry from 2.0 to 2.25."""
    reader = PacedReader(4.0)
    reader.arrive(0.0, 2)
    reader.arrive(1.0, 6)
    reader.arrive(2.25, 7)
    reader.end(2.3)
    assert reader.stall_count == 2
    assert reader.stall_s == pytest.approx(0.75)
    assert reader.least_runway_s == 0.0


def test_a_late_first_token_is_no_stall():
    reader = PacedReader(10.0)
    reader.arrive(60.0, 1)
    reader.end(60.05)
    assert reader.stall_count == 0
    assert reader.least_runway_s == pytest.approx(0.05)


def test_waiting_for_the_end_of_a_stream_is_a_stall_and_reading_on_after_it_is_not():
    reader = PacedReader(10.0)
    reader.arrive(0.0, 10)
    reader.end(1.5)
    assert reader.stall_s == pytest.approx(0.5)

    reader = PacedReader(10.0)
    reader.arrive(0.0, 10)
    reader.end(0.5)
    assert reader.runway_at(60.0) == pytest.approx(0.0)
    assert reader.stall_s == 0.0
    assert reader.read_tokens == 10.0


def test_runway_while_it_reads():
    reader = PacedReader(2.0)
    assert reader.runway_at(0.0) is None
    reader.arrive(0.0, 10)
    assert reader.runway_at(0.0) == pytest.approx(5.0)
    assert reader.runway_at(3.0) == pytest.approx(2.0)
    assert reader.least_runway_s is None  # looking is no arrival: nothing has been at stake yet


def test_nobody_reads_a_batch_request():
    reader = PacedReader(None)
    reader.arrive(0.0, 1)
    reader.arrive(100.0, 2)
    reader.end(200.0)
    assert reader.stall_count == 0
    assert reader.stall_s == 0.0
    assert reader.least_runway_s is None
    assert reader.runway_at(300.0) is None
    assert reader.arrived_tokens == 2


gaps_s = st.floats(0.0, 5.0)
arrivals = st.lists(st.tuples(gaps_s, st.integers(1, 20)), min_size=1, max_size=40)


@given(rate_tok_s=st.floats(0.1, 100.0), arrivals=arrivals, last_gap_s=gaps_s, looks=st.integers(0, 3))
def test_what_holds_for_every_stream(rate_tok_s, arrivals, last_gap_s, looks):
    """It never reads past what arrived; reading and stalling make up the elapsed time; looking changes nothing."""
    reader, watched = PacedReader(rate_tok_s), PacedReader(rate_tok_s)
    now_s, total = 3.0, 0
    first_s = now_s + arrivals[0][0]
    for gap_s, tokens in arrivals:
        for look in range(looks):
            watched.runway_at(now_s + gap_s * look / looks)
        now_s += gap_s
        total += tokens
        reader.arrive(now_s, total)
        watched.arrive(now_s, total)
        assert 0.0 <= reader.read_tokens <= reader.arrived_tokens == total
    now_s += last_gap_s
    reader.end(now_s)
    watched.end(now_s)
    reading_s = reader.read_tokens / rate_tok_s
    assert reading_s + reader.stall_s == pytest.approx(now_s - first_s, abs=1e-6)
    assert reader.stall_s == pytest.approx(watched.stall_s, abs=1e-6)
    assert reader.least_runway_s is not None
    assert reader.least_runway_s >= 0.0
    assert reader.least_runway_s <= total / rate_tok_s
    if reader.stall_s > 1e-6:
        assert reader.stall_count >= 1
        assert reader.least_runway_s == 0.0
    assert reader.stall_count <= len(arrivals)
    assert math.isfinite(reader.stall_s)
