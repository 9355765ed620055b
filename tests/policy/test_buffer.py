"""The virtual buffer: reading, stalls, rates that change, acks, hidden tokens."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenflow.policy.buffer import MAX_RATE_TOK_S, MIN_RATE_TOK_S, VirtualBuffer, sane_rate


def test_reading_starts_at_the_first_delivery_not_at_generation():
    buffer = VirtualBuffer(10.0)
    buffer.generate(20)
    buffer.advance(5.0)
    assert buffer.unread_tokens == 20
    assert buffer.first_delivery_s is None
    buffer.deliver(5.0, 20)
    buffer.advance(6.0)
    assert buffer.consumed_tokens == pytest.approx(10)
    assert buffer.runway_s == pytest.approx(1.0)


def test_nobody_reads_past_what_was_delivered():
    buffer = VirtualBuffer(10.0)
    buffer.deliver(0.0, 5)
    buffer.generate(50)
    buffer.advance(2.0)
    assert buffer.consumed_tokens == 5
    assert buffer.unread_tokens == 45
    assert buffer.stall_s == pytest.approx(1.5)
    assert buffer.is_stalled


def test_one_stall_is_counted_once_and_ends_with_a_delivery():
    buffer = VirtualBuffer(10.0)
    buffer.deliver(0.0, 10)
    for at_s in (1.5, 2.0, 2.5):
        buffer.advance(at_s)
    assert (buffer.stall_count, buffer.stall_s, buffer.dry_s) == (1, pytest.approx(1.5), pytest.approx(1.5))
    buffer.deliver(3.0, 20)
    assert buffer.dry_s == 0.0
    assert not buffer.is_stalled
    buffer.advance(4.5)
    assert (buffer.stall_count, buffer.stall_s) == (2, pytest.approx(2.5))


def test_reading_the_last_token_just_in_time_is_no_stall():
    buffer = VirtualBuffer(10.0)
    for i in range(30):
        buffer.deliver(0.1 * i, i + 1)
    assert buffer.stall_count == 0


def test_a_stream_that_has_ended_does_not_stall():
    buffer = VirtualBuffer(10.0)
    buffer.deliver(0.0, 10)
    buffer.end(0.5)
    buffer.advance(60.0)
    assert buffer.stall_s == 0.0
    assert buffer.unread_tokens == 0


def test_the_rate_changes_from_now_on():
    buffer = VirtualBuffer(10.0)
    buffer.deliver(0.0, 100)
    buffer.set_rate(2.0, 40.0)
    assert buffer.consumed_tokens == pytest.approx(20)
    buffer.advance(3.0)
    assert buffer.consumed_tokens == pytest.approx(60)
    assert buffer.runway_s == pytest.approx(1.0)


def test_an_ack_corrects_consumption_either_way():
    buffer = VirtualBuffer(10.0)
    buffer.deliver(0.0, 100)
    buffer.acknowledge(2.0, 5)
    assert buffer.unread_tokens == 95
    buffer.acknowledge(2.5, 60)
    assert buffer.unread_tokens == 40
    buffer.advance(3.5)
    assert buffer.unread_tokens == pytest.approx(30)


def test_late_and_repeated_acks_change_nothing():
    buffer = VirtualBuffer(10.0)
    buffer.deliver(0.0, 100)
    buffer.acknowledge(1.0, 50)
    buffer.acknowledge(1.0, 20, 1.0)
    assert (buffer.consumed_tokens, buffer.rate_tok_s) == (50, 10.0)
    buffer.acknowledge(1.0, 50)
    assert buffer.consumed_tokens == 50


def test_an_ack_beyond_what_was_delivered_is_cut():
    buffer = VirtualBuffer(10.0)
    buffer.deliver(0.0, 8)
    buffer.acknowledge(0.1, 10**9)
    assert buffer.unread_tokens == 0
    buffer.acknowledge(0.2, -5)
    assert buffer.consumed_tokens >= 8


def test_an_ack_may_bring_a_rate():
    buffer = VirtualBuffer(10.0)
    buffer.deliver(0.0, 100)
    buffer.acknowledge(1.0, 10, 30.0)
    assert buffer.runway_s == pytest.approx(3.0)


def test_an_ack_that_finds_unread_tokens_ends_a_stall():
    buffer = VirtualBuffer(10.0)
    buffer.deliver(0.0, 10)
    buffer.advance(2.0)
    assert buffer.is_stalled
    buffer.acknowledge(2.0, 4)
    assert not buffer.is_stalled
    assert buffer.dry_s == 0.0


def test_an_agent_has_no_runway_before_its_first_ack():
    buffer = VirtualBuffer(10.0, needs_ack=True)
    buffer.deliver(0.0, 5)
    buffer.advance(9.0)
    assert not buffer.has_reader
    assert buffer.unread_tokens is None
    assert buffer.runway_s is None
    assert buffer.stall_s == 0.0
    buffer.acknowledge(9.0, 1)
    assert buffer.has_reader
    assert buffer.unread_tokens == 4
    assert buffer.runway_s == pytest.approx(0.4)
    buffer.advance(10.0)
    assert buffer.stall_s == pytest.approx(0.6)


def test_hidden_tokens_give_no_runway():
    buffer = VirtualBuffer(10.0)
    buffer.hide(500)
    buffer.hide(300)
    assert (buffer.hidden_tokens, buffer.unread_tokens, buffer.runway_s) == (500, 0, 0.0)


def test_a_batch_request_has_no_reader():
    buffer = VirtualBuffer(None)
    buffer.deliver(0.0, 50)
    buffer.advance(99.0)
    assert (buffer.unread_tokens, buffer.runway_s, buffer.stall_s, buffer.consumed_tokens) == (None, None, 0.0, 0.0)
    assert not buffer.has_reader


def test_a_reader_who_joins_a_batch_request_reads_from_then_on():
    buffer = VirtualBuffer(None)
    buffer.deliver(0.0, 50)
    buffer.set_rate(10.0, 5.0)
    assert buffer.unread_tokens == 50
    buffer.advance(12.0)
    assert buffer.unread_tokens == pytest.approx(40)


def test_totals_never_go_back():
    buffer = VirtualBuffer(10.0)
    buffer.deliver(0.0, 50)
    buffer.generate(20)
    buffer.deliver(1.0, 30)
    assert (buffer.generated_tokens, buffer.delivered_tokens) == (50, 50)


def test_a_clock_that_jumps_back_stands_still():
    buffer = VirtualBuffer(10.0)
    buffer.deliver(100.0, 50)
    buffer.advance(101.0)
    for bad_s in (0.0, -600.0, math.nan):
        buffer.advance(bad_s)
    assert buffer.consumed_tokens == pytest.approx(10)
    buffer.advance(102.0)
    assert buffer.consumed_tokens == pytest.approx(20)


@pytest.mark.parametrize(
    ("given_rate", "rate"),
    [
        (0.0, MIN_RATE_TOK_S),
        (-5.0, MIN_RATE_TOK_S),
        (math.inf, MAX_RATE_TOK_S),
        (math.nan, None),
        (None, None),
        (7.0, 7.0),
    ],
)
def test_rates_are_brought_into_their_range(given_rate, rate):
    assert sane_rate(given_rate) == rate
    assert VirtualBuffer(given_rate).rate_tok_s == rate
    buffer = VirtualBuffer(3.0)
    buffer.set_rate(0.0, given_rate)
    assert buffer.rate_tok_s == rate


@given(
    events=st.lists(
        st.tuples(
            st.floats(-5, 50), st.sampled_from(["advance", "deliver", "ack", "rate", "end"]), st.integers(-3, 300)
        ),
        max_size=40,
    )
)
def test_what_always_holds(events):
    buffer = VirtualBuffer(8.0)
    now_s = 0.0
    for step_s, kind, number in events:
        now_s += step_s
        match kind:
            case "advance":
                buffer.advance(now_s)
            case "deliver":
                buffer.deliver(now_s, number)
            case "ack":
                buffer.acknowledge(now_s, number)
            case "rate":
                buffer.set_rate(now_s, float(number))
            case "end":
                buffer.end(now_s)
        assert 0.0 <= buffer.consumed_tokens <= buffer.delivered_tokens <= buffer.generated_tokens
        assert buffer.stall_s >= 0.0
        assert 0.0 <= buffer.dry_s <= buffer.stall_s + 1e-9
        assert buffer.runway_s >= 0.0
