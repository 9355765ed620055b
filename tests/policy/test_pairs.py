"""Pairing in detail: who pays, how many leave, what a decision carries."""

from dataclasses import replace

import pytest
from policy_rows import FAST_TOK_S, NOW_S, decide, engine_with, paused, running, swaps_of, view_of, waiting

from tokenflow.policy.carry import Carry
from tokenflow.policy.overload import OverloadState, advance
from tokenflow.policy.plan import Action, Cause
from tokenflow.policy.states import RequestState, Variant
from tokenflow.policy.tunables import Restore, Tunables

PAPER, GUIDE, FCFS = Variant.PAPER, Variant.GUIDE, Variant.FCFS
LAST = Carry(now_s=NOW_S - 0.02, slice_s=1.0)
PAGES = engine_with(kv_free_tokens=16)  # one runner's growth and eight tokens: pages are lacking


def benefit_of(made):
    return made.starts[0].benefit_s


def test_a_rescue_pays_for_the_newcomer_s_return():
    """3 x 5 s of stall avoided, less the 0.1 s that its load keeps the slot idle; slack 0.05 s."""
    made = decide(paused("p", 0.05), running("r", 30.0))
    assert benefit_of(made) == pytest.approx(3 * 5.0 - 0.1)
    heavier = decide(paused("p", 0.05), running("r", 30.0), weight_throughput=10.0)
    assert benefit_of(heavier) == pytest.approx(3 * 5.0 - 1.0)
    early = decide(paused("p", 0.5), running("r", 30.0))
    assert benefit_of(early) == pytest.approx(3 * (5.0 + 0.1 - 0.5) - 0.1)


def test_a_swap_pays_for_the_victim_s_return_where_its_kv_leaves():
    made = decide(waiting("w"), running("r", 30.0), engine=PAGES, restore=Restore.LOAD)
    assert benefit_of(made) == pytest.approx(5.0 - 0.1)


def test_a_swap_pays_for_the_victim_s_stall():
    """Nobody safe, but past the bound: out and back take 0.02 + 0.1 + 0.1 s, against a runway of 0.05 s."""
    old = waiting("old", arrival_s=NOW_S - 31.0)
    made = decide(old, running("r", 0.05), engine=PAGES, restore=Restore.LOAD)
    stalled_s = 0.02 + 0.1 + 0.1 - 0.05
    batch_s = 0.1 - 0.05  # the prefill of 0.1 s also stops the batch
    slack_s, lead_s = -1.0, 0.1
    gain = 3 * (5.0 + lead_s - max(slack_s, 0.0) - lead_s)
    assert benefit_of(made) == pytest.approx(gain - 0.1 - 3 * stalled_s - 0.1 - 3 * batch_s)


def test_the_second_of_a_group_pays_for_what_it_adds():
    """Two prefills of 0.1 s; a bystander with 0.15 s of runway is stalled by the second only."""
    rows = [waiting("a"), waiting("b"), running("r", 30.0), running("q", 30.0)]
    bystander = running("s", 0.25, may_pause=False)
    first, second = decide(*rows, bystander, min_benefit_s=0.0).starts
    assert first.benefit_s == second.benefit_s == pytest.approx(5.0)
    tight = running("s", 0.15, FAST_TOK_S, may_pause=False)
    made = decide(*rows, tight, engine=engine_with(costs={"schedule_s": 0.3}))
    assert [s.benefit_s for s in made.starts] == pytest.approx([5.0, 5.0 - 3 * 0.05])


def test_whoever_was_paused_is_not_among_those_who_run_any_more():
    """However the pass over the seekers ends: by the group's budget, by the bound, for want of victims."""
    fast = engine_with(costs={"d2h_bytes_s": 1e6})
    left = {"budget": [running("s", 0.1, may_pause=False)], "victims": []}
    for others in left.values():
        news = [waiting("a"), waiting("b"), waiting("c")]
        made = decide(*news, running("r", 30.0), running("q", 29.0), *others, engine=fast)
        gone = {d.rid for d in made.pauses}
        assert gone
        assert gone.isdisjoint(write.rid for write in made.writes)
        assert {w.rid for w in made.writes} == {"r", "q", *(row.rid for row in others)} - gone


def test_one_credit_is_one_swap():
    rows = (waiting("w"), running("r", 30.0))
    assert swaps_of(decide(*rows, carry=Carry(now_s=NOW_S, swap_credit=1.0))) == [("r", "w")]


def test_a_group_may_spend_the_least_runway_to_the_end():
    rows = [waiting("a"), waiting("b"), running("r", 30.0), running("q", 30.0)]
    assert len(decide(*rows, running("s", 0.2, may_pause=False)).starts) == 2
    assert len(decide(*rows, running("s", 0.19, may_pause=False)).starts) == 1


def test_a_free_place_for_one_past_the_bound_says_so():
    made = decide(waiting("old", arrival_s=NOW_S - 31.0), engine=engine_with(slots_free=1))
    assert made.starts[0].cause is Cause.STARVATION_BOUND


def test_later_ones_wait_longer_for_a_place():
    costs = {"release_rate_per_s": 0.5}
    rows = [waiting("a"), waiting("b"), waiting("c"), *(running(f"r{i}", 30.0) for i in range(3))]
    starts = decide(*rows, engine=engine_with(costs=costs)).starts
    assert [s.benefit_s for s in starts] == pytest.approx([2.0, 4.0, 5.0])


def test_a_gain_as_small_as_the_least_is_not_enough():
    costs = {"release_rate_per_s": 10.0}
    rows = (waiting("w"), running("r", 9.0))
    assert swaps_of(decide(*rows, engine=engine_with(costs=costs), min_benefit_s=0.1)) == []


def test_two_leave_for_two_and_each_knows_its_own():
    news = [waiting("a", arrival_s=NOW_S - 0.6, since_s=NOW_S - 0.6), waiting("b")]
    made = decide(*news, running("q", 5.0), running("r", 9.0))
    assert swaps_of(made) == [("r", "a"), ("q", "b")]
    assert [s.partner_row for s in made.starts] == [3, 2]


def test_whoever_frees_nothing_is_passed_over_and_the_next_looked_at():
    shared = running("shared", 9.0, kv_shared_tokens=100)
    made = decide(waiting("w"), shared, running("r", 5.0), engine=engine_with(slots_free=1, kv_free_tokens=24))
    assert [d.rid for d in made.pauses] == ["r"]
    for variant in (PAPER, GUIDE):
        made = decide(
            waiting("w"), shared, running("r", 5.0), engine=engine_with(slots_free=1, kv_free_tokens=24),
            variant=variant, carry=LAST,
        )  # fmt: skip
        assert [(d.rid, d.action.is_pause) for d in made.decisions] == [("r", True), ("w", False)]


@pytest.mark.parametrize("variant", [PAPER, GUIDE])
def test_the_other_variants_take_as_many_as_are_needed(variant):
    small = [running(f"s{i}", 9.0 + i, kv_device_tokens=60, context_tokens=60) for i in range(3)]
    made = decide(waiting("w"), *small, engine=engine_with(kv_free_tokens=24), variant=variant, carry=LAST)
    assert [d.rid for d in made.pauses] == ["s2", "s1"]
    assert [(d.rid, d.partner_row) for d in made.starts] == [("w", 3)]
    large = waiting("w", context_tokens=400)
    short = decide(large, *small, engine=engine_with(kv_free_tokens=24), variant=variant, carry=LAST)
    assert short.decisions == ()
    one = Carry(now_s=NOW_S, slice_s=1.0, swap_credit=1.0)
    assert decide(waiting("w"), *small, engine=engine_with(kv_free_tokens=24), variant=variant, carry=one).pauses == ()
    two = Carry(now_s=NOW_S, slice_s=1.0, swap_credit=2.0)
    made = decide(waiting("w"), *small, engine=engine_with(kv_free_tokens=24), variant=variant, carry=two)
    assert len(made.pauses) == 2


@pytest.mark.parametrize("variant", [PAPER, GUIDE])
def test_what_the_other_variants_decisions_carry(variant):
    made = decide(waiting("w"), running("r", 9.0), engine=PAGES, restore=Restore.LOAD, variant=variant, carry=LAST)
    (pause,), (start,) = made.pauses, made.starts
    assert (pause.action, pause.cause, pause.partner_row) == (Action.PAUSE_OFFLOAD, Cause.FIRST_TOKEN, 0)
    assert pause.required_runway_s == pytest.approx(2.0 if variant is GUIDE else 1.5 * 0.22)
    assert (start.action, start.cause, start.partner_row) == (Action.ADMIT, Cause.FIRST_TOKEN, 1)
    assert start.urgency_s == pytest.approx(0.5 - 0.1 - 0.5 / 30)
    back = decide(paused("p", 0.1), running("r", 9.0), variant=variant, carry=LAST, restore=Restore.RECOMPUTE)
    assert (back.starts[0].action, back.starts[0].cause) == (Action.RESUME_RECOMPUTE, Cause.RESCUE)
    assert back.pauses[0].action is Action.PAUSE_KEEP
    loaded = decide(paused("p", 0.1), running("r", 9.0), variant=variant, carry=LAST, restore=Restore.LOAD)
    assert loaded.starts[0].action is Action.RESUME_LOAD
    free = decide(paused("p", 0.1), engine=engine_with(slots_free=1), variant=variant, carry=LAST)
    assert (free.starts[0].cause, free.starts[0].partner_row) == (Cause.FREE_PLACE, None)


def test_fcfs_comes_back_by_the_cheaper_way():
    for restore, action in ((Restore.LOAD, Action.RESUME_LOAD), (Restore.RECOMPUTE, Action.RESUME_RECOMPUTE)):
        made = decide(paused("p"), engine=engine_with(slots_free=1), variant=FCFS, restore=restore)
        assert made.starts[0].action is action


def test_the_paper_shrinks_its_working_set():
    """Pool 1,640: W_static 10 over a footprint of 164; with one running W = floor(10 - 0.5 x 9) = 5, so four start."""
    rows = [waiting(f"w{i}", arrival_s=NOW_S - 0.5 + 0.01 * i, since_s=NOW_S - 0.5) for i in range(7)]
    engine = engine_with(slot_count=8, slots_free=7, kv_total_tokens=1_640, kv_free_tokens=1_540)
    made = decide(*rows, running("r", 0.0), engine=engine, variant=PAPER, carry=LAST)
    assert [d.rid for d in made.starts] == ["w0", "w1", "w2", "w3"]


def test_the_paper_exchanges_at_its_working_set_though_nothing_is_lacking():
    """As many run as are to run: whoever has more text makes way, and keeps its KV, since no page is lacking."""
    engine = engine_with(slot_count=8, slots_free=4, kv_total_tokens=640, kv_free_tokens=200)
    rows = [running(f"r{i}", 9.0, context_tokens=110) for i in range(4)]
    made = decide(waiting("w"), *rows, engine=engine, variant=PAPER, carry=LAST)
    assert len(made.pauses) == 1
    assert made.pauses[0].action is Action.PAUSE_KEEP
    assert [start.rid for start in made.starts] == ["w"]
    poorer = [running(f"r{i}", 0.0, context_tokens=110) for i in range(4)]
    assert decide(waiting("w"), *poorer, engine=engine, variant=PAPER, carry=LAST).pauses == ()


def test_the_paper_swaps_only_for_less_buffer():
    equal = decide(paused("p", rate_tok_s=20.0, unread_tokens=8.0), running("r", rate_tok_s=6.0, unread_tokens=8.0),
                   variant=PAPER, carry=LAST)  # fmt: skip
    assert equal.pauses == ()
    less = decide(paused("p", rate_tok_s=20.0, unread_tokens=7.0), running("r", rate_tok_s=6.0, unread_tokens=8.0),
                  variant=PAPER, carry=LAST)  # fmt: skip
    assert swaps_of(less) == [("r", "p")]


def test_the_paper_s_slice_is_due_after_a_second_and_not_before():
    rows = (waiting("w"), running("r", 9.0))
    for slice_s, swaps in ((0.979, []), (0.98, [("r", "w")])):
        carry = Carry(now_s=NOW_S - 0.02, slice_s=slice_s)
        assert swaps_of(decide(*rows, variant=PAPER, carry=carry)) == swaps


def test_the_paper_s_fallback_fills_exactly():
    rows = [waiting(f"w{i}", rate_tok_s=5.0, arrival_s=NOW_S - 9 + i) for i in range(4)]
    carry = Carry(now_s=NOW_S - 0.02, is_overloaded=True, demand_ratio=1.3)
    engine = engine_with(slots_free=4, capacity_tok_s=15.0)
    made = decide(*rows, engine=engine, variant=PAPER, carry=carry)
    assert [d.rid for d in made.starts] == ["w0", "w1", "w2"]
    done = replace(view_of(*rows).engine, slots_free=4, capacity_tok_s=1.0)
    assert [d.rid for d in decide(*rows, engine=done, variant=PAPER, carry=carry).starts] == ["w0"]


def advanced(ratio, elapsed_s=0.25, carry=None):
    rows = [running(f"r{i}", rate_tok_s=10.0) for i in range(10)]
    view = view_of(*rows, engine=engine_with(capacity_tok_s=100.0 / ratio), carry=carry or Carry())
    return advance(view, Tunables(), elapsed_s)


def test_the_state_of_overload_is_exact():
    assert advanced(0.8) == OverloadState(False, pytest.approx(0.8), 0.0, 0)
    assert advanced(1.25) == OverloadState(False, pytest.approx(1.25), 0.25, 0)
    assert advanced(1.0).beyond_s == 0.0  # on the band, not above it
    begun = advanced(1.25, carry=Carry(demand_ratio=1.25, beyond_s=0.75, switch_count=4))
    assert begun == OverloadState(True, pytest.approx(1.25), 0.0, 5)
    on = Carry(is_overloaded=True, demand_ratio=0.8, beyond_s=4.5, switch_count=5)
    assert advanced(0.8, carry=on) == OverloadState(True, pytest.approx(0.8), 4.75, 5)
    assert advanced(0.8, 0.5, carry=on) == OverloadState(False, pytest.approx(0.8), 0.0, 6)
    moving = advanced(2.0, 0.5, carry=Carry(demand_ratio=1.0))
    assert moving.demand_ratio == pytest.approx(2.0 - 2.718281828**-0.5, rel=1e-6)


def test_rows_take_their_defaults():
    view = view_of(waiting("a", arrival_s=5.0), running("b", serial=77), waiting("c", since_s=9.0))
    assert view.since_s.tolist() == [5.0, NOW_S - 50.0, 9.0]
    assert view.serial.tolist() == [0, 77, 2]
    assert len(view) == 3
    assert view.carry.now_s == NOW_S - 0.02
    assert {str(column.dtype) for column in (view.state, view.serial, view.arrival_s, view.may_pause)} == {
        "int8", "int64", "float64", "bool",
    }  # fmt: skip
    assert [RequestState.WAITING.is_live, RequestState.FINISHED.is_live] == [True, False]
