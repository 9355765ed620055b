"""The rules of `tokenflow`, one by one."""

import math

import numpy as np
import pytest
from policy_rows import COSTS, FAST_TOK_S, NOW_S, decide, engine_with, paused, running, swaps_of, view_of, waiting

from tokenflow.policy.benefit import UNKNOWN_WAIT_S, StallCost, gain_s, victim_cost_s
from tokenflow.policy.carry import Carry
from tokenflow.policy.costs import Costs
from tokenflow.policy.groups import SWAP_COST_FACTOR
from tokenflow.policy.plan import Action, Cause
from tokenflow.policy.states import Reason, RequestState
from tokenflow.policy.tunables import Restore, Tunables
from tokenflow.policy.urgency import LATENESS_CAP_S, urgencies
from tokenflow.policy.view import RequestView

FREE = engine_with(slots_free=1)
NAN = float("nan")


def test_a_free_place_goes_to_the_most_urgent():
    made = decide(waiting("new", arrival_s=NOW_S - 0.1), paused("dry", 0.05), paused("fine", 9.0), engine=FREE)
    assert [(d.rid, d.cause, d.action) for d in made.starts] == [("dry", Cause.FREE_PLACE, Action.RESUME_LOAD)]
    assert made.starts[0].reason is Reason.LOADING
    assert not made.drain_first


def test_starts_say_how():
    resident = {"kv_device_tokens": 100, "kv_both_tokens": 100}
    expected = [
        (waiting("a"), {}, Action.ADMIT, Reason.ADMITTED),
        (paused("a", **resident), {}, Action.RESUME, Reason.RUNNING_STARVING),
        (paused("a"), {}, Action.RESUME_LOAD, Reason.LOADING),
        (paused("a"), {"restore": Restore.RECOMPUTE}, Action.RESUME_RECOMPUTE, Reason.RECOMPUTING),
    ]
    for row, tunables, action, reason in expected:
        (start,) = decide(row, engine=FREE, **tunables).starts
        assert (start.action, start.reason) == (action, reason)


def test_a_first_token_swap_wants_surplus_in_the_victim():
    assert swaps_of(decide(waiting("w"), running("r", 1.99))) == []
    made = decide(waiting("w"), running("r", 2.0))
    assert swaps_of(made) == [("r", "w")]
    assert made.drain_first
    (pause,), (start,) = made.pauses, made.starts
    assert (pause.cause, pause.reason, pause.action) == (Cause.FIRST_TOKEN, Reason.PREEMPTED_SURPLUS, Action.PAUSE_KEEP)
    assert pause.required_runway_s == 2.0
    assert pause.runway_s == pytest.approx(2.0)
    assert (pause.partner_row, start.partner_row) == (0, 1)
    assert start.benefit_s == pytest.approx(UNKNOWN_WAIT_S)


def test_the_place_is_lent_for_the_prefill_and_the_first_run():
    """factor 1.5 x schedule 0.02, and hold: prefill 0.1 s + 8 tokens at 0.02 s."""
    limit_s = 1.5 * 0.02 + 0.1 + 8 * 0.02
    for runway_s, swaps in ((limit_s - 0.01, []), (limit_s + 0.01, [("r", "w")])):
        assert swaps_of(decide(waiting("w"), running("r", runway_s), surplus_s=0.0, reserve_s=0.0)) == swaps
    longer = decide(waiting("w"), running("r", limit_s + 0.01), surplus_s=0.0, reserve_s=0.0, first_run_tokens=16)
    assert swaps_of(longer) == []


def test_prefill_and_reserve_are_a_floor():
    for runway_s, swaps in ((0.79, []), (0.81, [("r", "w")])):
        assert swaps_of(decide(waiting("w"), running("r", runway_s), surplus_s=0.0, reserve_s=0.7)) == swaps


def test_the_way_out_and_back_counts_where_pages_are_lacking():
    """Evict and load of 100 tokens cost 0.1 s each: 1.5 x 0.22 + 0.26 of hold, and the KV leaves."""
    engine = engine_with(kv_free_tokens=16, costs={"prefill_s_per_token": 1e-3})
    limit_s = 1.5 * 0.22 + 0.26
    tunables = {"surplus_s": 0.0, "reserve_s": 0.0, "restore": Restore.LOAD}
    assert swaps_of(decide(waiting("w"), running("r", limit_s - 0.01), engine=engine, **tunables)) == []
    made = decide(waiting("w"), running("r", limit_s + 0.01), engine=engine, **tunables)
    assert [(d.rid, d.action) for d in made.pauses] == [("r", Action.PAUSE_OFFLOAD)]
    full = engine_with(kv_free_tokens=16, host_free_tokens=0)
    made = decide(waiting("w"), running("r", 5.0), engine=full, **tunables)
    assert [d.action for d in made.pauses] == [Action.PAUSE_DROP]


def test_a_request_that_nobody_reads_leaves_before_any_reader():
    batch = running("batch", rate_tok_s=NAN, unread_tokens=0.0)
    assert swaps_of(decide(waiting("w"), running("r", 50.0), batch)) == [("batch", "w")]


def test_who_may_not_leave():
    free_to_go = running("r", 9.0)
    assert swaps_of(decide(waiting("w"), free_to_go)) != []
    for values in (
        {"may_pause": False},
        {"since_s": NOW_S - 0.9},  # within the quantum
        {"run_tokens": 0.0},
        {"remaining_tokens": 1.0},  # ends before a swap would pay
        {"is_started": False},  # reasoning: its reader waits for the first visible token
    ):
        assert swaps_of(decide(waiting("w"), running("r", 9.0, **values))) == [], values


def test_a_first_run_is_short_while_others_wait_for_their_first_token():
    fresh = {"since_s": NOW_S - 0.3, "is_first_run": True}
    assert swaps_of(decide(waiting("w"), running("r", 9.0, run_tokens=7, **fresh))) == []
    assert swaps_of(decide(waiting("w"), running("r", 9.0, run_tokens=8, **fresh))) == [("r", "w")]
    assert swaps_of(decide(paused("p", 0.01), running("r", 9.0, run_tokens=8, **fresh))) == []


def test_a_paused_stream_is_fetched_before_it_runs_dry():
    """Lead 0.1 s, schedule 0.02 s, reserve 0.5 s, one step of 0.02 s."""
    due_s = 0.1 + 0.02 + 0.5 + 0.02
    assert swaps_of(decide(paused("p", due_s + 0.01), running("r", 30.0))) == []
    made = decide(paused("p", due_s - 0.01), running("r", 30.0))
    assert swaps_of(made) == [("r", "p")]
    assert made.pauses[0].cause is made.starts[0].cause is Cause.RESCUE


def test_a_rescue_before_it_is_due_must_pay_for_the_swap():
    cost_s = 0.1 + 0.02
    slack_s = 0.5
    limit_s = slack_s + SWAP_COST_FACTOR * cost_s
    assert swaps_of(decide(paused("p", slack_s), running("r", limit_s - 0.01))) == []
    assert swaps_of(decide(paused("p", slack_s), running("r", limit_s + 0.01))) == [("r", "p")]
    capped = {"quantum_s": 0.25}  # and never more than two quanta
    assert swaps_of(decide(paused("p", slack_s), running("r", 0.98), **capped)) == []
    assert swaps_of(decide(paused("p", slack_s), running("r", 1.02), **capped)) == [("r", "p")]


def test_once_due_whoever_has_more_runway_makes_room():
    """0.15 s left, lead and schedule take 0.12 s: now or never; still the victim must be safe."""
    assert swaps_of(decide(paused("p", 0.15), running("r", 0.59))) == []  # prefill 0.1 + reserve 0.5
    assert swaps_of(decide(paused("p", 0.15), running("r", 0.61))) == [("r", "p")]
    assert swaps_of(decide(paused("p", 0.15), running("r", 0.14), reserve_s=0.0)) == []  # has less itself


def test_a_rotation_takes_those_along_who_are_next():
    rows = [running("a", 9.5), running("b", 9.4)]
    soon = paused("soon", 1.5)  # beyond lead, schedule and reserve 0.88 s: less than a quantum
    later = paused("later", 1.7)
    assert swaps_of(decide(soon, later, *rows)) == []
    assert sorted(swaps_of(decide(soon, later, paused("due", 0.3), *rows))) == [("a", "due"), ("b", "soon")]
    more = [*rows, running("c", 9.0)]  # the step is paid for: whoever gains by it comes along
    assert len(swaps_of(decide(soon, later, paused("due", 0.3), *more))) == 3
    barely = [running("a", 9.0), running("b", 2.6)]
    assert swaps_of(decide(later, paused("due", 0.3), *barely)) == [("a", "due")]
    close = [running("a", 9.0), running("b", 2.4)]  # would be ahead of it by less than a quantum
    assert swaps_of(decide(soon, paused("due", 0.3), *close)) == [("a", "due")]
    assert len(swaps_of(decide(soon, paused("due", 0.3), running("a", 9.0), running("b", 2.6)))) == 2


def test_a_first_token_begins_a_rotation_too():
    rows = [running("a", 30.0), running("b", 30.0)]
    assert sorted(swaps_of(decide(waiting("w"), paused("soon", 1.5), *rows))) == [("a", "w"), ("b", "soon")]


def test_a_swap_must_gain_more_than_the_least_benefit():
    costs = {"release_rate_per_s": 10.0}  # the next place comes free by itself in 0.1 s
    rows = (waiting("w"), running("r", 9.0))
    assert swaps_of(decide(*rows, engine=engine_with(costs=costs), min_benefit_s=0.09)) == [("r", "w")]
    assert swaps_of(decide(*rows, engine=engine_with(costs=costs), min_benefit_s=0.11)) == []
    assert swaps_of(decide(*rows, engine=engine_with(costs=costs), min_benefit_s=0.09, weight_ttft=0.5)) == []


def test_a_prefill_that_stalls_the_batch_does_not_pay():
    """3 x 0.3 s of stall for each of eight dry readers against 5 s of waiting."""
    dry = [running(f"d{i}", 0.0, FAST_TOK_S) for i in range(8)]
    long = waiting("w", context_tokens=300)
    assert swaps_of(decide(long, running("r", 90.0), *dry)) == []
    assert swaps_of(decide(long, running("r", 90.0), *dry, weight_stall=0.5)) == [("r", "w")]
    assert swaps_of(decide(long, running("r", 90.0), *dry[:2])) == [("r", "w")]


def test_a_group_stops_before_it_would_let_somebody_run_dry():
    """Prefills of 0.1 s each; the least runway among those who run is 0.35 s."""
    news = [waiting(f"w{i}", arrival_s=NOW_S - 0.5 + 0.01 * i) for i in range(6)]
    rich = [running(f"r{i}", 30.0) for i in range(6)]
    assert len(swaps_of(decide(*news, *rich))) == 6
    assert len(swaps_of(decide(*news, *rich, running("tight", 0.35)))) == 3
    assert len(swaps_of(decide(*news, *rich, running("dry", 0.0, FAST_TOK_S)))) == 1  # one at least


def test_the_cap_on_swaps():
    news, rich = [waiting(f"w{i}") for i in range(6)], [running(f"r{i}", 30.0) for i in range(6)]
    assert len(decide(*news, *rich, max_swaps_per_s=4.0).pauses) == 4
    assert decide(*news, *rich, max_swaps_per_s=0.0).pauses == ()
    assert len(decide(*news, *rich, carry=Carry(now_s=NOW_S - 0.1, swap_credit=0.0)).pauses) == 5
    assert len(decide(*news, *rich, carry=Carry(now_s=NOW_S, swap_credit=0.99)).pauses) == 0
    made = decide(*news, *rich, carry=Carry(now_s=NOW_S - 0.1, swap_credit=3.0))
    assert made.carry.swap_credit == pytest.approx(3.0 + 5.0 - 6.0)
    assert decide(max_swaps_per_s=0.5).carry.swap_credit == 1.0


def test_several_victims_leave_where_one_does_not_free_enough():
    small = [running(f"s{i}", 9.0 + i, kv_device_tokens=60, context_tokens=60) for i in range(3)]
    made = decide(waiting("w"), *small, engine=engine_with(kv_free_tokens=24))
    assert [d.rid for d in made.pauses] == ["s1", "s0"]  # "s2" is far ahead
    assert {d.partner_row for d in made.pauses} == {0}
    large = running("large", 5.0, kv_device_tokens=400, context_tokens=400)
    made = decide(waiting("w"), small[0], large, engine=engine_with(kv_free_tokens=16))
    assert [d.rid for d in made.pauses] == ["large"]  # makes the first needless


def test_nobody_leaves_where_it_would_not_be_enough():
    shared = running("s", 9.0, kv_shared_tokens=100)
    assert decide(waiting("w"), shared, engine=engine_with(kv_free_tokens=50, slots_free=1)).pauses == ()
    assert decide(waiting("w"), running("s", 9.0), engine=engine_with(kv_free_tokens=-200)).pauses == ()


def test_past_the_bound_one_goes_first_whoever_has_to_make_room():
    old = waiting("old", arrival_s=NOW_S - 30.0)
    made = decide(old, running("poor", 0.1), running("poorer", 0.0))
    assert swaps_of(made) == [("poor", "old")]
    assert made.pauses[0].cause is Cause.STARVATION_BOUND
    assert made.pauses[0].reason is Reason.PREEMPTED_PRIORITY
    assert swaps_of(decide(waiting("w", arrival_s=NOW_S - 29.9), running("poor", 0.1))) == []
    both = decide(old, waiting("older", arrival_s=NOW_S - 40.0), running("a", 0.1), running("b", 0.0))
    assert swaps_of(both) == [("a", "older")]
    safe = decide(old, running("rich", 9.0), running("poor", 0.1))
    assert [(d.rid, d.cause) for d in safe.pauses] == [("rich", Cause.FIRST_TOKEN)]
    within_quantum = running("poor", 0.1, since_s=NOW_S - 0.5)
    assert swaps_of(decide(old, within_quantum)) == []


def test_nobody_passes_who_is_past_the_bound():
    """It needs all four pages' worth, and one has served its quantum: a newcomer does not take that one's place."""
    old = waiting("old", arrival_s=NOW_S - 30.0, context_tokens=900.0)
    ready = running("ready", 9.0)
    busy = [running(f"busy{i}", 9.0, since_s=NOW_S - 0.1) for i in range(3)]
    engine = engine_with(slot_count=4, slots_free=0, kv_total_tokens=1000, kv_free_tokens=600)
    assert swaps_of(decide(waiting("new"), ready, *busy, engine=engine)) == [("ready", "new")]
    assert swaps_of(decide(old, waiting("new"), ready, *busy, engine=engine)) == []


def test_past_the_bound_it_may_take_more_victims_than_the_credit_holds():
    old = waiting("old", arrival_s=NOW_S - 30.0, context_tokens=900.0)
    ready = [running(f"ready{i}", 9.0) for i in range(4)]
    engine = engine_with(slot_count=4, slots_free=0, kv_total_tokens=1000, kv_free_tokens=600)
    made = decide(old, *ready, engine=engine, max_swaps_per_s=1.0)
    assert len(made.pauses) > 1
    assert [start.rid for start in made.starts] == ["old"]
    assert decide(waiting("new", context_tokens=900.0), *ready, engine=engine, max_swaps_per_s=1.0).pauses == ()


def test_a_reader_counts_as_starving_only_while_dry():
    long_paused = paused("p", 3.0, since_s=NOW_S - 500.0)
    assert swaps_of(decide(long_paused, running("r", 0.1))) == []
    dry = paused("p", 0.0, dry_s=31.0)
    made = decide(dry, running("r", 0.1))
    assert [(d.rid, d.cause) for d in made.pauses] == [("r", Cause.STARVATION_BOUND)]
    assert decide(dry, running("r", 9.0)).pauses[0].cause is Cause.RESCUE


def test_a_batch_request_is_bounded_too():
    batch = paused("b", rate_tok_s=NAN, unread_tokens=0.0, since_s=NOW_S - 29.0)
    assert swaps_of(decide(batch, running("r", 0.1))) == []
    batch.since_s = NOW_S - 31.0
    assert swaps_of(decide(batch, running("r", 0.1))) == [("r", "b")]


def test_pages_that_come_free_are_for_whoever_is_past_the_bound():
    old = waiting("old", arrival_s=NOW_S - 99.0, context_tokens=4_000)
    made = decide(old, waiting("small"), engine=engine_with(slots_free=2, kv_free_tokens=1_000))
    assert made.starts == ()
    assert made.blocked == (0,)
    fresh = decide(waiting("large", context_tokens=4_000), waiting("small"), engine=engine_with(
        slots_free=2, kv_free_tokens=1_000
    ))  # fmt: skip
    assert [d.rid for d in fresh.starts] == ["small"]


def test_the_operator_s_hand():
    made = decide(running("r", 0.0, is_held=True, may_pause=False), running("other", 0.0))
    assert [(d.rid, d.cause, d.reason) for d in made.pauses] == [("r", Cause.OPERATOR, Reason.PREEMPTED_OPERATOR)]
    assert decide(waiting("w", is_held=True), paused("p", 0.0, is_held=True), engine=FREE).starts == ()


def test_a_full_pool():
    rows = [running("safe", 9.0), running("unsafe", 0.01), running("young", 99.0, since_s=NOW_S - 0.1)]
    made = decide(*rows, engine=engine_with(kv_free_tokens=5))
    assert [(d.rid, d.cause, d.reason) for d in made.pauses] == [("safe", Cause.KV_FULL, Reason.PREEMPTED_KV_FULL)]
    assert decide(*rows, engine=engine_with(kv_free_tokens=6)).pauses == ()
    nobody_safe = [running("a", 0.01), running("b", 0.02), running("c", 0.0)]
    assert [d.rid for d in decide(*nobody_safe, engine=engine_with(kv_free_tokens=0)).pauses] == ["b"]
    ahead = [running("ahead", 9.5, length_tokens=100), running("further", 12.0, length_tokens=100)]
    assert [d.rid for d in decide(rows[0], *ahead, engine=engine_with(kv_free_tokens=5)).pauses] == ["safe"]
    assert [d.rid for d in decide(rows[1], *ahead, engine=engine_with(kv_free_tokens=5)).pauses] == ["ahead"]
    slow = {"engine": engine_with(kv_free_tokens=5, costs={"schedule_s": 20.0})}  # nobody is safe: who lacks least
    assert [d.rid for d in decide(rows[1], *ahead, **slow).pauses] == ["further"]
    fixed = [running("a", 9.0, may_pause=False), running("b", 0.0)]
    assert [d.rid for d in decide(*fixed, engine=engine_with(kv_free_tokens=0)).pauses] == ["b"]
    assert decide(running("only", 9.0), engine=engine_with(kv_free_tokens=0)).pauses == ()
    assert len(decide(*rows, engine=engine_with(kv_free_tokens=-10_000)).pauses) == 2
    no_credit = decide(*rows, engine=engine_with(kv_free_tokens=0), max_swaps_per_s=0.0)
    assert len(no_credit.pauses) == 1


def test_an_operator_s_pause_does_not_make_the_pool_look_full():
    rows = [running("held", 9.0, is_held=True), running("a", 9.0), running("b", 9.0)]
    assert [d.rid for d in decide(*rows, engine=engine_with(kv_free_tokens=4)).pauses] == ["held"]
    assert [d.rid for d in decide(*rows, engine=engine_with(kv_free_tokens=3)).pauses] == ["held", "a"]


def test_a_full_pool_writes_what_the_host_has_room_for():
    rows = [running("a", 9.0), running("b", 8.0), running("c", 7.0)]
    slow = {"prefill_s_per_token": 1.0}
    made = decide(*rows, engine=engine_with(costs=slow, kv_free_tokens=-120, host_free_tokens=100))
    assert [(d.rid, d.action) for d in made.pauses] == [("a", Action.PAUSE_OFFLOAD), ("b", Action.PAUSE_DROP)]


def terms_of(row, **tunables):
    found = urgencies(view_of(row), Tunables(**tunables), np.array([0]))
    return {name: float(getattr(found, name)[0]) for name in ("slack_s", "lead_s", "starving_s", "urgency_s")}


def test_urgency_is_slack_less_lead_less_ageing():
    reader = terms_of(paused("p", 2.0))
    assert reader == {"slack_s": 2.0, "lead_s": pytest.approx(0.1), "starving_s": 0.0, "urgency_s": pytest.approx(1.9)}
    dry = terms_of(paused("p", 0.0, dry_s=3.0))
    assert dry["slack_s"] == -3.0
    assert dry["urgency_s"] == pytest.approx(-3.0 - 0.1 - 3.0 / 30)
    fresh = terms_of(waiting("w", arrival_s=NOW_S - 0.25))
    assert fresh["slack_s"] == pytest.approx(0.75)
    assert fresh["urgency_s"] == pytest.approx(0.75 - 0.1 - 0.25 / 30)
    late = terms_of(waiting("w", arrival_s=NOW_S - 20.0))
    assert late["slack_s"] == -LATENESS_CAP_S
    assert terms_of(waiting("w", arrival_s=NOW_S - 20.0), ttft_target_s=25.0)["slack_s"] == pytest.approx(5.0)
    batch = terms_of(paused("b", rate_tok_s=NAN, unread_tokens=0.0))
    assert batch["slack_s"] == 25.0
    assert batch["starving_s"] == 5.0
    reasoning = terms_of(paused("p", is_started=False, unread_tokens=0.0, arrival_s=NOW_S - 0.25))
    assert reasoning["slack_s"] == pytest.approx(0.75)


def test_ties_go_by_arrival_then_by_id():
    rows = [waiting(name, arrival_s=NOW_S - 20.0 - 0.001 * 0, since_s=NOW_S - 20.0) for name in "abc"]
    assert [d.rid for d in decide(*rows, engine=FREE).starts] == ["a"]
    rows[1].arrival_s -= 5.0
    assert [d.rid for d in decide(*rows, engine=FREE).starts] == ["b"]


def test_stall_cost_is_the_sum_over_the_batch():
    cost = StallCost([0.5, 0.0, 2.0])
    for pause_s in (0.0, 0.2, 0.5, 1.0, 3.0):
        assert cost.stall_s(pause_s) == pytest.approx(sum(max(pause_s - r, 0.0) for r in (0.5, 0.0, 2.0)))
    assert StallCost([]).stall_s(9.0) == 0.0


def test_gains_in_weighted_seconds():
    weights = Tunables(weight_ttft=2.0, weight_stall=3.0, weight_throughput=5.0, quantum_s=1.5)
    assert gain_s(Cause.FIRST_TOKEN, 0.4, 0.1, 4.0, weights) == 8.0
    assert gain_s(Cause.SHARE, 9.0, 0.1, 4.0, weights) == 7.5
    assert gain_s(Cause.RESCUE, 1.0, 0.5, 4.0, weights) == pytest.approx(3 * 3.5)  # would stall 3.5 s otherwise
    assert gain_s(Cause.RESCUE, 0.2, 0.5, 4.0, weights) == pytest.approx(3 * 4.0)  # 0.3 s cannot be avoided
    assert gain_s(Cause.RESCUE, -7.0, 0.5, 4.0, weights) == pytest.approx(3 * 4.0)
    assert gain_s(Cause.RESCUE, 9.0, 0.5, 4.0, weights) == 0.0


def test_what_a_victim_loses():
    weights = Tunables(weight_stall=3.0, weight_throughput=5.0)
    assert victim_cost_s(2.0, 1.0, 0.2, weights) == pytest.approx(1.0)
    assert victim_cost_s(0.5, 1.0, 0.2, weights) == pytest.approx(2.5)


def test_many_seekers_are_cut_off_at_the_right_urgency():
    news = [waiting(f"w{i:03}", arrival_s=NOW_S - 0.5 + 1e-4 * i) for i in range(300)]
    news.append(waiting("bound", arrival_s=NOW_S - 31.0))
    made = decide(*reversed(news), running("r", 50.0), running("q", 40.0), engine=engine_with(slots_free=1))
    assert [d.rid for d in made.starts] == ["bound", "w000", "w001"]


def test_carry_is_handed_on():
    made = decide(running("r"), carry=Carry(now_s=NOW_S - 0.02, switch_count=3))
    assert made.carry.now_s == NOW_S
    assert made.carry.switch_count == 3
    assert made.carry.demand_ratio is None
    assert Carry().elapsed_s(5.0) == 0.0
    assert Carry(now_s=4.9).elapsed_s(5.0) == pytest.approx(0.1)
    assert Carry(now_s=6.0).elapsed_s(5.0) == 0.0
    assert Carry(now_s=0.0).elapsed_s(500.0) == 0.5


def test_prefilling_and_loading_requests_are_left_alone():
    rows = [
        RequestView("f", RequestState.PREFILLING, context_tokens=100, kv_device_tokens=10),
        RequestView("l", RequestState.LOADING, context_tokens=100),
        RequestView("o", RequestState.OFFLOADING, context_tokens=100, kv_device_tokens=50),
        RequestView("d", RequestState.FINISHED, context_tokens=100, kv_device_tokens=100),
        RequestView("x", RequestState.ABORTED),
    ]
    assert decide(*rows, engine=engine_with(slots_free=3)).decisions == ()


def test_the_default_costs_are_careful():
    assert Costs().schedule_s > 0
    assert math.isfinite(COSTS.prefill_s_per_token)


def test_room_on_the_host_is_not_given_to_a_victim_and_to_a_paused_copy_alike():
    """1,000 unwritten tokens of a paused stream and 500 of room: what a victim writes of it is missing for the copy,
    and for the next victim."""
    kept = paused("kept", 20.0, is_held=True, kv_device_tokens=1_000, kv_host_tokens=0, kv_both_tokens=0)
    victims = [
        running(f"r{i}", 9.0 - i, kv_device_tokens=1_000, context_tokens=1_000, kv_both_tokens=600) for i in (0, 1)
    ]
    engine = engine_with(kv_free_tokens=16, host_free_tokens=500, kv_total_tokens=9_000)
    made = decide(waiting("w", context_tokens=1_490), kept, *victims, engine=engine, restore=Restore.LOAD)
    freed = 1_000 * len(made.pauses) + sum(release.tokens for release in made.releases)
    written = sum(release.write_tokens for release in made.releases)
    written += sum(400 for pause in made.pauses if pause.action is Action.PAUSE_OFFLOAD)
    assert [start.rid for start in made.starts] == ["w"]
    assert freed + 16 >= 1_490 + 8
    assert written <= 500
