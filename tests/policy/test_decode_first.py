"""Starting others, or a token for those who run first."""

import pytest
from policy_rows import engine_with, paused, running, view_of, waiting

from tokenflow.policy.planner import plan
from tokenflow.policy.tunables import Tunables

PREFILL = {"prefill_s_per_token": 0.002}  # a prompt of 100 tokens takes 0.2 s


def started(*rows, **engine):
    engine = {"slots_free": 8, "slot_count": 16, "step_s": 0.01, "costs": PREFILL, **engine}
    return [one.rid for one in plan(view_of(*rows, engine=engine_with(**engine)), Tunables()).starts]


def crowd(runway_s, count=6, rate_tok_s=6.0):
    return [running(f"r{number}", runway_s, rate_tok_s) for number in range(count)]


def test_those_who_would_run_dry_get_a_token_first():
    assert started(*crowd(0.0), waiting("w")) == []
    assert started(*crowd(0.1), waiting("w")) == []


def test_whoever_has_runway_is_not_in_the_way():
    assert started(*crowd(0.3), waiting("w")) == ["w"]
    assert started(*crowd(0.0, count=1), *[waiting(f"w{number}") for number in range(60)], step_s=0.02) != [], (
        "too many wait"
    )


@pytest.mark.parametrize("rate_tok_s", [100.0, 1000.0])
def test_readers_as_fast_as_the_engine_keep_nobody_waiting(rate_tok_s):
    """A step brings them no runway: they will be dry at the next one as well."""
    assert started(*crowd(0.0, rate_tok_s=rate_tok_s), waiting("w")) == ["w"]


def test_many_who_gain_next_to_nothing_keep_nobody_waiting():
    """A hundred readers gain 0.2 ms a step: more in all than a step costs one newcomer, at every step anew."""
    many = crowd(0.0, count=100, rate_tok_s=45.0)
    wide = {"slot_count": 128, "slots_free": 28, "step_s": 0.022, "costs": {"prefill_s_per_token": 0.01}}
    assert started(*many, waiting("w"), **wide) == ["w"]


def test_a_paused_reader_that_is_dry_counts_more_than_a_first_token():
    few = crowd(0.0, count=1, rate_tok_s=20.0)
    assert started(*few, waiting("w")) == []
    assert started(*few, *[paused(f"p{number}", 0.0, dry_s=1.0) for number in range(6)]) != []


def test_hidden_reasoning_gains_no_runway():
    hidden = [running(f"r{number}", 0.0, is_started=False) for number in range(6)]
    assert started(*hidden, waiting("w")) == ["w"]


def test_nobody_waits_beyond_the_bound():
    assert started(*crowd(0.0), waiting("w", arrival_s=0.0, since_s=0.0)) == ["w"]


def test_an_idle_engine_starts_at_once():
    assert started(waiting("w")) == ["w"]
