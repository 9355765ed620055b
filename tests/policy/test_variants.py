"""`paper`, `guide` and `fcfs`: their formulas, and the examples of their sources."""

import math

import numpy as np
import pytest
from policy_rows import NOW_S, decide, engine_with, paused, running, swaps_of, view_of, waiting

from tokenflow.policy.carry import Carry
from tokenflow.policy.plan import Cause
from tokenflow.policy.states import RequestState, Variant
from tokenflow.policy.variants.guide import DELTA_S, LAMBDA, UNSTARTED_BONUS, priorities
from tokenflow.policy.variants.paper import MARGIN_TOKENS, SHRINK, working_set
from tokenflow.policy.view import RequestView

PAPER, GUIDE, FCFS = Variant.PAPER, Variant.GUIDE, Variant.FCFS
NAN = float("nan")


def test_fcfs_starts_the_oldest_and_pauses_nobody():
    rows = [waiting("b", arrival_s=NOW_S - 2), waiting("a", arrival_s=NOW_S - 3), running("r", 99.0), paused("p", 0.0)]
    assert swaps_of(decide(*rows, variant=FCFS)) == []
    made = decide(*rows, engine=engine_with(slots_free=2), variant=FCFS)
    assert [d.rid for d in made.starts] == ["p", "a"]


def test_fcfs_lets_nobody_pass_the_first_that_does_not_fit():
    rows = [waiting("big", arrival_s=NOW_S - 3, context_tokens=900), waiting("small")]
    made = decide(*rows, engine=engine_with(slots_free=2, kv_free_tokens=500), variant=FCFS)
    assert made.starts == ()
    assert made.blocked == (0,)


def test_fcfs_relieves_a_full_pool_and_obeys_the_operator():
    made = decide(running("a", 9.0), running("b", 0.0), engine=engine_with(kv_free_tokens=0), variant=FCFS)
    assert [(d.rid, d.cause) for d in made.pauses] == [("a", Cause.KV_FULL)]
    made = decide(running("a", 9.0, is_held=True), variant=FCFS)
    assert [d.cause for d in made.pauses] == [Cause.OPERATOR]


def priority_of(row):
    return float(priorities(view_of(row), np.array([0]))[0])


def test_the_guide_s_priority():
    assert priority_of(running("r", 4.0)) == pytest.approx(-math.log(4.0))
    assert priority_of(running("r", 0.0)) == pytest.approx(-math.log(DELTA_S))
    fresh = waiting("w", since_s=NOW_S - 1.0)
    assert priority_of(fresh) == pytest.approx(-math.log(DELTA_S) + LAMBDA / (1.0 + DELTA_S) + UNSTARTED_BONUS)
    assert priority_of(paused("p", 2.0)) == pytest.approx(-math.log(2.0) + LAMBDA / (5.0 + DELTA_S))
    assert priority_of(running("b", rate_tok_s=NAN, unread_tokens=0.0)) == pytest.approx(-math.log(1e6))


def test_the_guide_s_eligibility():
    """Prefill 0.1 s + ε 0.5 s, and above the threshold of 2 s."""
    assert swaps_of(decide(waiting("w"), running("r", 1.99), variant=GUIDE)) == []
    assert swaps_of(decide(waiting("w"), running("r", 2.01), variant=GUIDE)) == [("r", "w")]
    low = {"variant": GUIDE, "surplus_s": 0.1}
    assert swaps_of(decide(waiting("w"), running("r", 0.59), **low)) == []
    assert swaps_of(decide(waiting("w"), running("r", 0.61), **low)) == [("r", "w")]


def test_the_guide_evicts_the_largest_slack_and_only_who_ranks_below():
    made = decide(waiting("w"), running("a", 4.0), running("b", 9.0), variant=GUIDE)
    assert swaps_of(made) == [("b", "w")]
    assert swaps_of(decide(paused("p", 5.0), running("a", 4.0), variant=GUIDE)) == []
    made = decide(paused("p", 1.0), running("a", 4.0), variant=GUIDE)
    assert swaps_of(made) == [("a", "p")]
    assert made.pauses[0].cause is Cause.RESCUE


def test_the_guide_serves_a_free_place_by_priority():
    made = decide(paused("p", 0.0), waiting("w"), engine=engine_with(slots_free=1), variant=GUIDE)
    assert [d.rid for d in made.starts] == ["w"]  # the bonus for the unstarted
    blocked = decide(waiting("w"), running("r", 0.0), engine=engine_with(slots_free=1, kv_free_tokens=5), variant=GUIDE)
    assert blocked.starts == ()
    assert blocked.blocked == (0,)


def test_equations_4_and_5():
    rows = [running(f"r{i}", context_tokens=136, kv_device_tokens=136) for i in range(2)]
    view = view_of(*rows, engine=engine_with(kv_total_tokens=2_000, slot_count=4))
    static = 2_000 // (136 + MARGIN_TOKENS)
    assert working_set(view, 4) == static == 10
    assert working_set(view, 2) == math.floor(static - SHRINK * (static - 2)) == 6
    assert working_set(view_of(engine=engine_with(kv_total_tokens=0)), 0) == 1


LAST = Carry(now_s=NOW_S - 0.02, slice_s=1.0)


def test_the_paper_reschedules_once_a_slice():
    rows = (waiting("w"), running("r", 9.0))
    assert swaps_of(decide(*rows, variant=PAPER, carry=Carry(now_s=NOW_S - 0.02, slice_s=0.9))) == []
    made = decide(*rows, variant=PAPER, carry=LAST)
    assert swaps_of(made) == [("r", "w")]
    assert made.carry.slice_s == 0.0
    assert decide(*rows, variant=PAPER, carry=Carry(now_s=NOW_S - 0.02, slice_s=0.5)).carry.slice_s == pytest.approx(
        0.52
    )
    assert swaps_of(decide(*rows, variant=PAPER, carry=Carry())) == [("r", "w")]


def test_the_paper_needs_a_reason_to_reschedule():
    assert decide(paused("p", 3.0), running("r", 9.0), variant=PAPER, carry=LAST).carry.slice_s > 1.0
    made = decide(paused("p", 0.4), running("r", 9.0), variant=PAPER, carry=LAST)
    assert swaps_of(made) == [("r", "p")]


def test_the_paper_s_safety_condition():
    """factor x rate x (evict + load + schedule); for a slot alone only the schedule's 0.02 s is left of it."""
    for runway_s, swaps in ((0.029, []), (0.031, [("r", "w")])):
        assert swaps_of(decide(waiting("w"), running("r", runway_s), variant=PAPER, carry=LAST)) == swaps


def test_the_paper_takes_the_least_buffer_in_tokens_first():
    """b in tokens, not in seconds: 10 tokens at 20 tok/s rank behind 9 at 2 tok/s."""
    fast = paused("fast", rate_tok_s=20.0, unread_tokens=10.0)
    slow = paused("slow", rate_tok_s=2.0, unread_tokens=9.0)
    made = decide(fast, slow, running("r", 99.0), waiting("w", is_held=True), variant=PAPER, carry=Carry(
        now_s=NOW_S - 0.02, slice_s=1.0
    ), engine=engine_with(slots_free=0))  # fmt: skip
    assert made.starts == ()  # neither is critical, nobody waits
    urgent = paused("urgent", rate_tok_s=20.0, unread_tokens=1.0)
    made = decide(fast, slow, urgent, running("r", 99.0), running("q", 99.0), variant=PAPER, carry=LAST)
    assert [d.rid for d in made.starts] == ["urgent", "slow"]


def test_between_slices_the_paper_admits_in_order_of_arrival():
    rows = [waiting("b", arrival_s=NOW_S - 2), waiting("a", arrival_s=NOW_S - 3)]
    early = Carry(now_s=NOW_S - 0.02, slice_s=0.1)
    assert [d.rid for d in decide(*rows, engine=engine_with(slots_free=1), variant=PAPER, carry=early).starts] == ["a"]


def test_the_local_search_matters_at_the_edge_of_memory():
    """The first by value does not fit; the next one does and goes before it."""
    big = waiting("big", rate_tok_s=9.0, context_tokens=900)
    small = waiting("small", rate_tok_s=6.0)
    made = decide(big, small, engine=engine_with(slots_free=1, kv_free_tokens=500), variant=PAPER, carry=LAST)
    assert [d.rid for d in made.starts] == ["small"]


def overloaded(*rows, **engine):
    carry = Carry(now_s=NOW_S - 0.02, is_overloaded=True, demand_ratio=1.3, slice_s=5.0)
    return decide(*rows, engine=engine_with(capacity_tok_s=20.0, **engine), variant=PAPER, carry=carry)


def test_the_paper_s_fallback_is_first_come_first_served():
    rows = [running("r", 99.0), waiting("a", arrival_s=NOW_S - 3), waiting("b", arrival_s=NOW_S - 2), paused("p", 0.0)]
    made = overloaded(*rows, slots_free=4)
    assert made.pauses == ()
    assert [(d.rid, d.reason) for d in made.starts] == [("p", "overload_fcfs"), ("a", "overload_fcfs")]  # 3 x 6 <= 20
    assert overloaded(waiting("w", rate_tok_s=50.0), slots_free=1).starts != ()  # the first always
    assert overloaded(running("r"), waiting("w", rate_tok_s=50.0), slots_free=1).starts == ()


def test_whoever_is_past_the_bound_is_served_by_all_that_preempt():
    old = waiting("old", arrival_s=NOW_S - 31.0)
    for variant in (PAPER, GUIDE):
        made = decide(old, running("poor", 0.001), running("poorer", 0.0), variant=variant, carry=LAST)
        assert [(d.rid, d.cause) for d in made.pauses] == [("poor", Cause.STARVATION_BOUND)]
        made = decide(old, running("rich", 99.0), running("poor", 0.0), variant=variant, carry=LAST)
        assert [(d.rid, d.cause) for d in made.pauses] == [("rich", Cause.FIRST_TOKEN)]
        assert decide(old, running("young", 99.0, since_s=NOW_S), variant=variant, carry=LAST).pauses == ()


def test_requests_in_other_states_are_left_alone():
    rows = [RequestView("f", RequestState.PREFILLING, context_tokens=9), RequestView("d", RequestState.FINISHED)]
    for variant in Variant:
        assert decide(*rows, engine=engine_with(slots_free=2), variant=variant, carry=LAST).decisions == ()


def test_the_guide_judges_the_starving_one_by_its_own_prefill():
    """Past the bound: prefill 0.5 s + ε, above a low threshold; the other newcomer's prefill does not matter."""
    old = waiting("old", arrival_s=NOW_S - 31.0, context_tokens=500)
    low = {"variant": GUIDE, "surplus_s": 0.0}
    made = decide(waiting("w", is_held=True), old, running("r", 0.9), **low)
    assert made.pauses[0].cause is Cause.STARVATION_BOUND
    made = decide(waiting("a", context_tokens=1), old, running("r", 1.1), running("q", 0.0), **low)
    assert [(d.rid, d.cause) for d in made.pauses] == [("r", Cause.FIRST_TOKEN)]
    made = decide(waiting("a", context_tokens=1), old, running("r", 0.9), running("q", 0.0), **low)
    assert [(d.rid, d.cause) for d in made.pauses] == [("r", Cause.STARVATION_BOUND)]


def test_the_guide_serves_many_in_one_decision():
    news = [waiting(f"w{i}", arrival_s=NOW_S - 0.5 + 0.01 * i, since_s=NOW_S - 0.5) for i in range(4)]
    rich = [running(f"r{i}", 5.0 + i) for i in range(3)]
    made = decide(*news, *rich, engine=engine_with(slots_free=1), variant=GUIDE)
    assert swaps_of(made) == [("r2", "w1"), ("r1", "w2"), ("r0", "w3"), (None, "w0")]
    assert {d.cause for d in made.pauses} == {Cause.FIRST_TOKEN}


def test_the_guide_gives_up_after_some_who_cannot_be_fitted():
    huge = [waiting(f"h{i:02}", context_tokens=6_000, rate_tok_s=6.0) for i in range(20)]
    small = paused("small", 1.0)
    made = decide(*huge[:15], small, running("r", 9.0), variant=GUIDE)
    assert [d.rid for d in made.starts] == ["small"]
    assert decide(*huge, small, running("r", 9.0), variant=GUIDE).starts == ()


def test_fcfs_says_why_and_gives_each_free_slot_once():
    rows = [waiting(f"w{i}", arrival_s=NOW_S - 5 + i) for i in range(4)]
    made = decide(*rows, engine=engine_with(slots_free=2), variant=FCFS)
    assert [(d.rid, d.cause, d.reason) for d in made.starts] == [
        ("w0", Cause.FREE_PLACE, "admitted"), ("w1", Cause.FREE_PLACE, "admitted"),
    ]  # fmt: skip
    assert made.blocked == ()
    assert len(decide(rows[0], engine=engine_with(slots_free=1), variant=FCFS).starts) == 1


def test_nobody_waits_for_a_slice_beyond_the_bound():
    early = Carry(now_s=NOW_S - 0.02, slice_s=0.1)
    old = waiting("old", arrival_s=NOW_S - 31.0)
    older = paused("older", 9.0, arrival_s=NOW_S - 99.0)
    made = decide(older, old, engine=engine_with(slots_free=1), variant=PAPER, carry=early)
    assert [d.rid for d in made.starts] == ["old"]
    assert made.carry.slice_s == pytest.approx(0.12)
    made = decide(old, running("r", 9.0), variant=PAPER, carry=early)
    assert swaps_of(made) == [("r", "old")]
