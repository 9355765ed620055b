"""The seed article's figures, one by one."""

import math

import pytest

from tokenflow.policy.buffer import VirtualBuffer
from tokenflow.policy.safety import required_runway_s, required_tokens
from tokenflow.policy.states import RequestState
from tokenflow.policy.urgency import runways
from tokenflow.policy.view import EngineView, RequestView, View


def runway_s(unread_tokens, rate_tok_s):
    row = RequestView("a", RequestState.RUNNING, rate_tok_s=rate_tok_s, unread_tokens=unread_tokens, is_started=True)
    view = View.from_rows([row], EngineView(0.0, 1, 0, 100, 50))
    (value,) = runways(view, view.state.nonzero()[0])
    return value


def test_60_unread_tokens_at_15_per_second_last_4_seconds():
    assert runway_s(60, 15) == 4.0


def test_12_unread_tokens_at_15_per_second_last_0_8_seconds():
    assert runway_s(12, 15) == pytest.approx(0.8)


def test_80_at_20_is_four_seconds_and_10_at_20_half_a_second():
    assert runway_s(80, 20) == 4.0
    assert runway_s(10, 20) == 0.5


def test_ten_tokens_cover_half_a_second_at_20_and_a_quarter_at_40():
    assert runway_s(10, 20) == 0.5
    assert runway_s(10, 40) == 0.25


def test_the_buffer_agrees_with_the_view():
    buffer = VirtualBuffer(15.0)
    buffer.deliver(0.0, 60)
    assert buffer.runway_s == 4.0
    buffer.advance(3.2)
    assert buffer.unread_tokens == pytest.approx(12.0)
    assert buffer.runway_s == pytest.approx(0.8)


def test_transition_of_80_220_and_20_ms_protects_0_48_seconds():
    protected_s = required_runway_s(evict_s=0.08, load_s=0.22, schedule_s=0.02, safety_factor=1.5)
    assert protected_s == pytest.approx(0.48)
    assert 20 * protected_s == pytest.approx(9.6)
    assert required_tokens(20, protected_s) == 10


def test_a_fixed_token_threshold_would_be_wrong():
    protected_s = required_runway_s(evict_s=0.08, load_s=0.22, schedule_s=0.02, safety_factor=1.5)
    assert runway_s(10, 20) >= protected_s
    assert runway_s(10, 40) < protected_s
    assert required_tokens(40, protected_s) == 20


def test_a_whole_number_of_tokens_is_not_rounded_up():
    assert required_tokens(20, 0.5) == 10
    assert required_tokens(20, 0.1 + 0.2 + 0.2) == 10  # 0.5 and a rounding error


def test_the_condition_takes_the_largest_of_its_three_terms():
    def required(**terms):
        return required_runway_s(evict_s=0.1, load_s=0.1, schedule_s=0.0, safety_factor=1.5, **terms)

    assert required() == pytest.approx(0.3)
    assert required(hold_s=1.0) == pytest.approx(1.3)
    assert required(prefill_s=0.4, reserve_s=0.5) == pytest.approx(0.9)
    assert required(reserve_s=0.5) == pytest.approx(0.3)  # no newcomer, no prefill, no reserve for it
    assert required(prefill_s=0.0, surplus_s=2.0) == pytest.approx(2.0)


def test_thirty_tokens_are_comfortable_for_a_slow_reader_and_urgent_for_fast_speech():
    assert runway_s(30, 10) == 3.0
    assert runway_s(30, 60) == 0.5
    assert math.isinf(runway_s(30, float("nan")))  # nobody reads along
