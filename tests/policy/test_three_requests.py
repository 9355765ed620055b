"""The seed article's schedule of three requests: two slots of 40 tok/s, rates 20, 30 and 25, the third from 2 s."""

import pytest
from toy_engine import Stream, ToyEngine

from tokenflow.policy.costs import Costs
from tokenflow.policy.plan import Cause
from tokenflow.policy.tunables import Tunables

STEP_S = 0.025


def run(swap_s=0.0, end_s=12.0, **tunables):
    streams = [Stream("R1", 0.0, 20), Stream("R2", 0.0, 30), Stream("R3", 2.0, 25)]
    costs = Costs(schedule_s=STEP_S + swap_s, prefill_fixed_s=0.0, prefill_s_per_token=0.0)
    engine = ToyEngine(
        streams, slots=2, tok_s=40, step_s=STEP_S, swap_s=swap_s, costs=costs, tunables=Tunables(**tunables)
    )
    return engine.run_until(end_s)


def swaps(engine):
    """(when, who left, who came) of every swap."""
    found = []
    for at_s, decision in engine.log:
        if decision.action.is_pause:
            newcomer = next(
                d.rid for t, d in engine.log if t == at_s and d.partner_row == decision.row and d != decision
            )
            found.append((at_s, decision.rid, newcomer))
    return found


ARTICLE = {"surplus_s": 3.0, "reserve_s": 1.0}


def test_nobody_is_preempted_when_the_third_arrives():
    engine = run(end_s=2.8, **ARTICLE)
    assert engine.streams["R3"].arrival_s == 2.0
    assert swaps(engine) == []


def test_r1_leaves_for_r3_at_three_seconds_and_r2_for_r1_at_five():
    engine = run(**ARTICLE)
    (first_s, *first), (second_s, *second) = swaps(engine)[:2]
    assert first == ["R1", "R3"]
    assert first_s == pytest.approx(3.0, abs=0.1)
    assert second == ["R2", "R1"]
    assert second_s == pytest.approx(5.0, abs=0.1)
    assert engine.counts[Cause.FIRST_TOKEN] == 1
    assert engine.counts[Cause.RESCUE] == len(swaps(engine)) - 1


@pytest.mark.parametrize("swap_s", [0.0, 0.1, 0.2])
def test_no_reader_stalls_up_to_twelve_seconds(swap_s):
    engine = run(swap_s, **ARTICLE)
    assert engine.stall_s == 0.0
    assert len(swaps(engine)) >= 3


@pytest.mark.parametrize("swap_s", [0.0, 0.1, 0.2])
def test_with_the_defaults_swaps_come_earlier_and_still_nobody_stalls(swap_s):
    engine = run(swap_s)
    at_s, *_ = swaps(engine)[0]
    assert 2.0 <= at_s < 2.5
    assert engine.stall_s == 0.0


def test_without_swaps_the_third_would_wait_for_ever():
    engine = run(max_swaps_per_s=0.0)
    assert engine.streams["R3"].ttft_s is None


def test_a_minute_of_it_without_a_stall():
    assert run(end_s=60.0, **ARTICLE).stall_s == 0.0
    assert run(end_s=60.0, swap_s=0.1).stall_s == 0.0
