"""Figures worked out by hand, and the playback against the virtual buffer."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenflow.policy.buffer import VirtualBuffer
from tokenflow.quality.effective import (
    added_weight,
    author_score,
    effective_tok_s,
    effective_tok_s_author,
    effective_tokens,
    token_weights,
)
from tokenflow.quality.goodput import GoodputLimits, goodput_ratio, goodput_tok_s, is_good, is_smooth
from tokenflow.quality.playback import play
from tokenflow.quality.qoe import andes_qoe, max_idle_s, qos
from tokenflow.quality.record import StreamRecord
from tokenflow.quality.summary import summarise


def stream(*times, rate=10.0, arrival=0.0):
    return StreamRecord.of(arrival, times, rate)


def steady(count, gap, first=0.5, rate=10.0, arrival=0.0):
    return StreamRecord.of(arrival, [arrival + first + gap * i for i in range(count)], rate)


def test_ttft_is_from_the_arrival():
    assert stream(3.5, 4.0, arrival=3.0).ttft_s == 0.5
    assert stream(arrival=3.0).ttft_s is None


def test_a_stream_at_its_reader_s_pace_does_not_stall():
    played = play(steady(50, 0.1))
    assert played.stall_s == 0.0
    assert played.stall_count == 0
    assert played.unread_tokens == pytest.approx(np.ones(50))


def test_one_gap_beyond_the_buffer_is_one_stall():
    """Five tokens at once last 0.5 s at 10 tok/s; the sixth comes after 0.8 s: 0.3 s of stall."""
    played = play(stream(1.0, 1.0, 1.0, 1.0, 1.0, 1.8, 1.9))
    assert played.stall_s == pytest.approx(0.3)
    assert played.stall_count == 1
    assert played.unread_tokens == pytest.approx([1, 2, 3, 4, 5, 1, 1])


def test_a_gap_that_the_buffer_covers_is_none():
    assert play(stream(1.0, 1.0, 1.0, 1.0, 1.0, 1.5)).stall_s == 0.0


def test_the_end_of_a_stream_is_no_stall():
    assert play(stream(1.0, 1.1)).stall_s == 0.0
    assert play(stream(1.0)).stall_s == 0.0
    assert play(stream()).stall_s == 0.0
    with pytest.raises(ValueError, match="nobody reads"):
        play(stream(1.0, rate=None))


@settings(max_examples=150, deadline=None)
@given(
    gaps=st.lists(st.sampled_from([0.0, 0.01, 0.1, 0.25, 1.0, 3.0]), min_size=1, max_size=40),
    rate=st.sampled_from([0.5, 4.0, 10.0, 33.0]),
)
def test_the_playback_agrees_with_the_virtual_buffer(gaps, rate):
    times = (1.0 + np.cumsum(gaps)).tolist()
    buffer = VirtualBuffer(rate)
    unread = []
    for count, at_s in enumerate(times, start=1):
        buffer.deliver(at_s, count)
        unread.append(buffer.unread_tokens)
    played = play(StreamRecord.of(0.0, times, rate))
    assert played.stall_s == pytest.approx(buffer.stall_s, abs=1e-6)
    assert played.stall_count == buffer.stall_count
    assert played.unread_tokens == pytest.approx(unread, abs=1e-6)


def test_weights_are_full_below_a_tenth_and_nothing_from_a_fifth():
    weights = token_weights(np.array([0.0, 9.9, 10.0, 15.0, 20.0, 25.0]), 100.0)
    assert weights == pytest.approx([1.0, 1.0, 1.0, 0.5, 0.0, 0.0])


def test_effective_tokens_by_the_paper_s_text():
    """100 tokens at once, read at 10 tok/s: those that meet up to 10 unread count fully, up to 20 in part."""
    record = StreamRecord.of(0.0, [1.0] * 100, 10.0)
    # Buffers met: 0, 1, ... 99. Full for 0..10, then (20 - b)/10.
    assert effective_tokens(record) == pytest.approx(11 + sum((20 - b) / 10 for b in range(11, 20)))
    assert effective_tokens(steady(100, 0.1)) == 100.0
    assert effective_tokens(StreamRecord.of(0.0, [1.0] * 100, None)) == 0.0


def test_stalls_do_not_subtract_in_the_text_and_do_in_the_authors_computation():
    late = stream(1.0, 3.0)  # a gap of 2 s at 10 tok/s: the buffer goes to 1 - 20 = -19
    assert effective_tokens(late) == 2.0
    assert author_score(late) == pytest.approx(-19.0)


def test_the_authors_length_is_4096_whatever_the_stream_s():
    record = StreamRecord.of(0.0, [1.0] * 1001, 10.0)
    # Buffers 1, 2, ... 1000 after each gap; full below 409.6, nothing from 819.2.
    expected = 409 + sum((819.2 - b) / 409.6 for b in range(410, 820))
    assert author_score(record) == pytest.approx(expected)
    assert author_score(record, 1_000_000.0) == 1000.0
    assert author_score(stream(1.0)) == 0.0
    assert author_score(StreamRecord.of(0.0, [1.0, 2.0], None)) == 0.0


def test_effective_throughput_is_per_second_of_the_run():
    records = [steady(100, 0.1), steady(100, 0.1)]
    assert effective_tok_s(records, 20.0) == pytest.approx(10.0)
    assert effective_tok_s_author(records, 20.0) == pytest.approx(99 / 10)
    assert effective_tok_s(records, 0.0) == effective_tok_s_author(records, 0.0) == 0.0


def test_qos_of_equation_2():
    """100 full tokens, TTFT 0.5 s, and one with a stall of 2 - 0.1 s: weights minus λ·TTFT minus μ·rebuffering."""
    good, stalled = steady(100, 0.1), stream(0.5, 2.5)
    expected = (100 - 2 * 0.5) + (2 - 2 * 0.5 - 30 * 1.9)
    assert qos([good, stalled], 10.0, ttft_weight=2.0, stall_weight=30.0) == pytest.approx(expected / 10)
    assert qos([stream(), stream(1.0, rate=None)], 10.0) == 0.0
    assert qos([good], 0.0) == 0.0


def test_andes_qoe_is_one_for_an_ideal_stream_and_less_for_a_late_one():
    assert andes_qoe(steady(50, 0.1, first=1.0), 1.0) == pytest.approx(1.0)
    assert andes_qoe(steady(50, 0.05, first=0.2), 1.0) == 1.0  # faster than ideal is no better
    # Two tokens, each 1 s late: S_delay = 2; the last is read at 2.1: S_whole = (2.1 - 1) + (2.1 - 1.1) = 2.1.
    assert andes_qoe(stream(2.0, 2.1), 1.0) == pytest.approx(1 - 2 / 2.1)
    later = [andes_qoe(steady(50, 0.1, first=first), 1.0) for first in (1.0, 2.0, 4.0, 8.0)]
    assert later == sorted(later, reverse=True)
    assert later[-1] < 0.5
    assert andes_qoe(stream(), 1.0) is None
    assert andes_qoe(stream(1.0, rate=None), 1.0) is None


def test_andes_sees_a_pause_in_the_middle_that_mean_time_per_token_hides():
    smooth = steady(100, 0.1, first=1.0)
    paused = StreamRecord.of(0.0, [1.0 + 0.05 * i for i in range(10)] + [10.9 + 1e-3 * i for i in range(-89, 1)], 10.0)
    assert paused.token_count == smooth.token_count
    assert paused.token_times_s[-1] == pytest.approx(smooth.token_times_s[-1])
    assert andes_qoe(paused, 1.0) < 0.7 < andes_qoe(smooth, 1.0)


def test_max_idle_is_the_worst_lateness():
    assert max_idle_s(steady(50, 0.1, first=1.0), 1.0) == pytest.approx(0.0, abs=1e-9)
    assert max_idle_s(stream(1.0, 1.1, 3.2), 1.0) == pytest.approx(2.0)
    assert max_idle_s(stream(0.1, 0.1), 1.0) == 0.0
    assert max_idle_s(stream(), 1.0) is None
    assert max_idle_s(stream(1.0, rate=None), 1.0) is None


def test_goodput_wants_both_limits():
    limits = GoodputLimits.parse("ttft:500,tbt:200")
    assert (limits.ttft_s, limits.tbt_s) == (0.5, 0.2)
    assert is_good(steady(10, 0.2, first=0.5), limits)
    assert not is_good(steady(10, 0.1, first=0.6), limits)
    assert not is_good(stream(0.1, 0.2, 0.45), limits)
    assert not is_good(stream(), limits)
    assert is_good(stream(0.1), limits)
    records = [steady(10, 0.1, first=0.4), steady(30, 0.1, first=0.9)]
    assert goodput_ratio(records, limits) == 0.5
    assert goodput_tok_s(records, limits, 5.0) == 2.0
    assert goodput_ratio([], limits) == 0.0
    assert goodput_tok_s(records, limits, 0.0) == 0.0


def test_a_quantile_of_the_gaps_can_be_asked_for():
    record = stream(*([0.1 + 0.01 * i for i in range(200)] + [9.0]))
    assert not is_good(record, GoodputLimits())
    assert is_good(record, GoodputLimits(tbt_quantile=0.99))


def test_a_gap_that_the_buffer_covers_is_smooth_though_not_good():
    record = stream(*([0.1] * 20 + [2.0]))
    limits = GoodputLimits()
    assert not is_good(record, limits)
    assert is_smooth(record, limits)
    assert not is_smooth(stream(0.1, 0.9), limits)
    assert not is_smooth(stream(0.9), limits)
    assert not is_smooth(stream(0.1, rate=None), limits)


@pytest.mark.parametrize("text", ["", "ttft", "ttft:x", "tpot:5", "ttft:1,ttft:2", "ttft:-1"])
def test_limits_that_cannot_be_read(text):
    with pytest.raises(ValueError, match="each once"):
        GoodputLimits.parse(text)


def test_limits_that_are_not_named_do_not_bind():
    assert GoodputLimits.parse("ttft:500").tbt_s == math.inf
    assert GoodputLimits.parse("tbt:200 ttft:500") == GoodputLimits.parse("ttft:500,tbt:200")


def test_the_summary_puts_it_together():
    records = [
        steady(100, 0.1, first=0.5),
        steady(100, 0.1, first=2.5, arrival=1.0),
        StreamRecord.of(2.0, [3.0, 3.1], None),
        StreamRecord.of(2.0, [], 5.0),
    ]
    found = summarise(records, ttft_target_s=1.0)
    assert (found.request_count, found.started_count) == (4, 3)
    assert found.wall_s == pytest.approx(1.0 + 2.5 + 9.9)
    assert found.ttft_mean_s == pytest.approx((0.5 + 2.5 + 1.0) / 3)
    assert found.ttft_p50_s == pytest.approx(1.0)
    assert found.ttft_p99_s == pytest.approx(np.quantile([0.5, 2.5, 1.0], 0.99))
    assert found.raw_tok_s == pytest.approx(202 / found.wall_s)
    assert found.effective_tok_s == pytest.approx(200 / found.wall_s)
    assert found.stall_s_total == pytest.approx(0.0, abs=1e-6)
    assert found.max_idle_s_p99 == pytest.approx(1.5 * 0.99, abs=1e-6)
    assert found.goodput_ratio == 0.25
    assert 0.85 < found.qoe_mean < 0.95


def test_a_summary_of_nothing():
    found = summarise([])
    assert (found.request_count, found.raw_tok_s, found.ttft_p99_s, found.qoe_mean) == (0, 0.0, None, None)
    assert summarise([stream()]).wall_s == 0.0


def test_times_that_run_backwards_stand_still():
    assert StreamRecord.of(0.0, [1.0, 0.5, 2.0], 5.0).token_times_s.tolist() == [1.0, 1.0, 2.0]


@given(st.floats(0, 500), st.integers(0, 300), st.floats(1, 4096))
def test_the_live_weight_of_tokens_that_arrive_at_once_is_the_sum_of_their_weights(unread, added, length):
    expected = token_weights(unread + np.arange(added, dtype=np.float64), length).sum()
    assert added_weight(unread, added, length) == pytest.approx(expected, abs=1e-6, rel=1e-6)
