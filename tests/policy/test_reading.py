"""The rate that is measured from acks: steady readers, faster and slower ones, pauses, skimming, bunches and lies."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenflow.policy.reading import WINDOW_S, ReadingRate


def read(rate: ReadingRate, tok_s: float, begin_s: float, end_s: float, every_s: float = 1.0, begin_tokens: int = 0):
    """Acks at a steady pace; gives what was read by the end."""
    for step in itertools.count():
        at_s = begin_s + step * every_s
        if at_s > end_s + 1e-9:
            break
        done = begin_tokens + int((at_s - begin_s) * tok_s)
        rate.observe(at_s, done, False)
    return done


@given(
    tok_s=st.floats(2.0, 200.0),
    claimed_tok_s=st.floats(0.1, 10_000.0),
    every_s=st.floats(0.05, 1.2),
    begin_s=st.floats(0, 1e6),
)
def test_a_steady_reader_is_known_within_five_seconds(tok_s, claimed_tok_s, every_s, begin_s):
    rate = ReadingRate(claimed_tok_s)
    read(rate, tok_s, begin_s, begin_s + 5.0, every_s)
    # A whole token at each end of what was observed, at least 3 s, cannot be known better.
    assert rate.tok_s == pytest.approx(tok_s, rel=0.02, abs=1.0 / 2.7)


def test_one_ack_measures_nothing():
    rate = ReadingRate(6.0)
    rate.observe(0.0, 5, False)
    assert rate.tok_s is None


def test_a_faster_reader_is_believed_after_two_intervals():
    rate = ReadingRate(3.0)
    done = read(rate, 3.0, 0.0, 20.0)
    read(rate, 30.0, 20.0, 22.0, begin_tokens=done)
    assert rate.tok_s == pytest.approx(29.0, abs=1.0)


def test_a_slower_reader_is_believed_by_and_by():
    rate = ReadingRate(30.0)
    done = read(rate, 30.0, 0.0, 20.0)
    read(rate, 5.0, 20.0, 22.0, begin_tokens=done)
    assert rate.tok_s > 20.0
    read(rate, 5.0, 20.0, 20.0 + WINDOW_S + 1.0, begin_tokens=done)
    assert rate.tok_s == pytest.approx(5.0, rel=0.1)


def test_a_pause_makes_no_slow_reader():
    rate = ReadingRate(10.0)
    done = read(rate, 10.0, 0.0, 10.0)
    read(rate, 0.0, 11.0, 60.0, begin_tokens=done)
    assert rate.tok_s == pytest.approx(10.0, rel=0.05)
    read(rate, 10.0, 61.0, 66.0, begin_tokens=done)
    assert rate.tok_s == pytest.approx(10.0, rel=0.05)


def test_a_pause_without_acks_makes_no_slow_reader():
    rate = ReadingRate(10.0)
    done = read(rate, 10.0, 0.0, 10.0)
    rate.observe(40.0, done + 10, False)
    assert rate.tok_s == pytest.approx(10.0, rel=0.05)
    rate.observe(70.0, done + 20, False)
    assert rate.tok_s < 3.0, "twice is no pause any more"


def test_a_jump_in_steady_reading_is_skimming():
    rate = ReadingRate(5.0)
    done = read(rate, 5.0, 0.0, 10.0)
    rate.observe(11.0, done + 500, False)
    assert rate.tok_s == pytest.approx(5.0, rel=0.05)
    read(rate, 5.0, 12.0, 16.0, begin_tokens=done + 505)
    assert rate.tok_s == pytest.approx(5.0, rel=0.05)


def test_lumps_are_a_way_of_reading():
    """A client that acks each second and moves on by a paragraph every five."""
    rate = ReadingRate(6.0)
    for second in range(40):
        rate.observe(float(second), second // 5 * 50, False)
    assert 8.0 <= rate.tok_s <= 20.0


def test_acks_that_a_network_has_bunched_are_taken_as_one():
    rate = ReadingRate(10.0)
    read(rate, 10.0, 0.0, 10.0, 0.5)
    for number in range(6):  # those of three seconds, within a hundredth of one
        rate.observe(13.0 + number * 0.002, 105 + number * 5, False)
    rate.observe(13.6, 136, False)
    assert rate.tok_s == pytest.approx(10.0, rel=0.3)


def test_a_reader_that_waits_for_the_engine_is_no_slow_reader():
    rate = ReadingRate(30.0)
    for second in range(20):
        rate.observe(float(second), second * 8, True)
    assert rate.tok_s is None, "8 tok/s are what it was given"


def test_a_reader_that_waits_is_at_least_as_fast_as_what_it_was_given():
    rate = ReadingRate(5.0)
    for second in range(5):
        rate.observe(float(second), second * 12, True)
    assert rate.tok_s == pytest.approx(11.0)


def test_a_new_claim_begins_anew():
    rate = ReadingRate(5.0)
    done = read(rate, 20.0, 0.0, 10.0)
    rate.claim(4.0)
    assert (rate.tok_s, rate.claimed_tok_s) == (None, 4.0)
    read(rate, 4.0, 10.0, 15.0, begin_tokens=done)
    assert rate.tok_s == pytest.approx(4.0, rel=0.1)


ACKS = st.lists(st.tuples(st.floats(-2.0, 8.0), st.integers(-50, 400), st.booleans()), max_size=60)


@given(ACKS, st.one_of(st.none(), st.floats(0.1, 10_000)))
def test_no_lie_gives_more_than_the_progress_that_was_acked(acks, claimed_tok_s):
    rate, now_s, consumed_tokens, seen = ReadingRate(claimed_tok_s), 0.0, 0, []
    for step_s, tokens, is_dry in acks:
        now_s += step_s
        consumed_tokens += tokens
        if rate.observe(now_s, consumed_tokens, is_dry):
            seen.append((now_s, consumed_tokens))
        if rate.tok_s is not None:
            fastest = max((b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(seen))
            assert 0.0 < rate.tok_s <= fastest * (1 + 1e-9)
        assert seen == sorted(seen)


def test_what_is_kept_is_bounded():
    rate = ReadingRate(5.0)
    for number in range(2000):
        rate.observe(number * 0.01, number, False)
    assert len(rate._intervals) <= WINDOW_S / 0.5 + 3
