"""Whatever a view holds, the plan stays valid: no exception, no warning, no illegal change."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policy_rows import FAST_TOK_S
from policy_views import NOW_S, check_structure, tunables, views

from tokenflow.policy.carry import Carry
from tokenflow.policy.plan import Action
from tokenflow.policy.planner import plan
from tokenflow.policy.states import RequestState, Variant
from tokenflow.policy.table import RequestTable
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.view import EngineView, RequestView, View

EVERY = pytest.mark.parametrize("variant", list(Variant))
BAD = [0.0, -1.0, math.nan, math.inf, -math.inf, 1e18, 1e-18]
COLUMNS = [
    "rate_tok_s", "unread_tokens", "dry_s", "arrival_s", "since_s", "run_tokens", "context_tokens", "remaining_tokens",
    "length_tokens", "kv_device_tokens", "kv_host_tokens", "kv_both_tokens", "kv_shared_tokens",
]  # fmt: skip


@EVERY
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), view=views())
def test_any_value_in_any_column(variant, data, view):
    for _ in range(data.draw(st.integers(1, 6))):
        name = data.draw(st.sampled_from(COLUMNS))
        column = getattr(view, name).copy()
        if len(column):
            column[data.draw(st.integers(0, len(column) - 1))] = data.draw(st.sampled_from(BAD))
        view = replace(view, **{name: column})
    values = data.draw(tunables(variant))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_structure(view, plan(view, values))


@EVERY
@pytest.mark.parametrize("field", ["kv_free_tokens", "kv_total_tokens", "host_free_tokens", "slots_free", "step_s"])
@pytest.mark.parametrize("value", [0, -5, 10**12])
def test_odd_figures_of_the_engine(variant, field, value):
    rows = [waiting("w"), running("r", unread_tokens=1e6), paused("p", unread_tokens=0.0, dry_s=1e6)]
    view = View.from_rows(rows, replace(ENGINE, **{field: value}))
    check_structure(view, plan(view, Tunables(variant=variant)))


@EVERY
@pytest.mark.parametrize("jump_s", [-600.0, -60.0, 60.0, 600.0, 1e9])
def test_a_clock_that_jumps(variant, jump_s):
    """Minutes back or forth: overload timers and credits count a second at most, and the plan stays valid."""
    rows = [waiting("w"), running("a"), running("b", unread_tokens=3.0), paused("p")]
    carry = Carry(now_s=NOW_S, demand_ratio=0.95, beyond_s=0.5, swap_credit=3.0, slice_s=0.5)
    view = View.from_rows(rows, replace(ENGINE, now_s=NOW_S + jump_s, capacity_tok_s=1e3), carry)
    made = plan(view, Tunables(variant=variant))
    check_structure(view, made)
    assert not made.is_overloaded
    assert made.carry.beyond_s <= 1.5
    assert made.carry.swap_credit <= 50.0
    assert made.carry.now_s == NOW_S + jump_s


def test_one_jump_can_neither_begin_nor_end_overload():
    rows = [running("a", rate_tok_s=500.0)]
    for overloaded, capacity in ((False, 100.0), (True, 10_000.0)):
        carry = Carry(now_s=NOW_S, is_overloaded=overloaded, demand_ratio=1.0)
        view = View.from_rows(rows, replace(ENGINE, now_s=NOW_S + 300.0, capacity_tok_s=capacity), carry)
        state = plan(view, Tunables()).carry
        assert state.is_overloaded is overloaded
        assert state.switch_count == 0


@EVERY
def test_an_empty_view(variant):
    made = plan(View.from_rows([], ENGINE), Tunables(variant=variant))
    assert made.decisions == ()
    assert made.writes == made.releases == ()


@EVERY
def test_a_million_unread_tokens(variant):
    rows = [waiting("w"), running("rich", unread_tokens=1e6), running("poor", rate_tok_s=FAST_TOK_S, unread_tokens=0.0)]
    made = plan(View.from_rows(rows, ENGINE), Tunables(variant=variant))
    if variant is not Variant.FCFS:
        assert [d.rid for d in made.pauses] == ["rich"]
        assert [d.rid for d in made.starts] == ["w"]


@EVERY
def test_more_kv_than_memory_starts_nobody(variant):
    rows = [waiting("w"), running("a"), running("b")]
    view = View.from_rows(rows, replace(ENGINE, slots_free=1, kv_free_tokens=-500, kv_total_tokens=300))
    made = plan(view, Tunables(variant=variant))
    assert made.starts == ()
    assert {d.reason for d in made.pauses} == {"preempted_kv_full"}
    assert len(made.pauses) == 1  # one goes on running, whatever happens


@EVERY
def test_a_request_larger_than_the_pool_does_not_hold_up_the_others(variant):
    huge = waiting("huge", context_tokens=10**7, arrival_s=NOW_S - 500.0, since_s=NOW_S - 500.0)
    made = plan(View.from_rows([huge, waiting("small")], replace(ENGINE, slots_free=2)), Tunables(variant=variant))
    assert [d.rid for d in made.starts] == ["small"]


def test_of_duplicate_ids_the_first_counts():
    rows = [waiting("same", context_tokens=5.0), running("same"), waiting("other")]
    view = View.from_rows(rows, replace(ENGINE, slots_free=2))
    assert list(view.rids) == ["same", "other"]
    assert view.context_tokens.tolist() == [5.0, 100.0]
    assert sorted(d.rid for d in plan(view, Tunables()).starts) == ["other", "same"]


def test_a_table_knows_a_request_once_and_forgets_it():
    table = RequestTable()
    for i in range(100):
        table.add(waiting(f"r{i}", arrival_s=float(i)))
    table.add(running("r7", unread_tokens=70.0))
    assert len(table) == 100
    table.remove("r0")
    table.remove("r0")
    table.remove("never")
    assert len(table) == 99
    assert "r0" not in table
    view = table.view(ENGINE, Carry())
    assert sorted(view.rids) == sorted(f"r{i}" for i in range(1, 100))
    row = view.row_of("r7")
    assert (view.unread_tokens[row], view.serial[row]) == (70.0, 7)
    assert view.arrival_s[view.row_of("r99")] == 99.0
    for rid in list(view.rids):
        table.remove(rid)
    assert plan(table.view(ENGINE, Carry()), Tunables()).decisions == ()


def test_requests_that_vanish_between_two_decisions():
    table = RequestTable()
    for i in range(6):
        table.add(running(f"r{i}", unread_tokens=60.0) if i < 2 else waiting(f"r{i}"))
    first = plan(table.view(ENGINE, Carry()), Tunables())
    assert first.starts
    for decision in first.decisions:
        table.remove(decision.rid)
    view = table.view(replace(ENGINE, slots_free=2), first.carry)
    check_structure(view, plan(view, Tunables()))


def test_the_table_changes_states_and_columns():
    table = RequestTable()
    table.add(waiting("a"))
    table.set_state("a", RequestState.RUNNING, 7.0)
    table.set("a", unread_tokens=12.0, is_held=True)
    table.column("run_tokens")[:] += 3.0
    view = table.view(ENGINE, Carry())
    assert (int(view.state[0]), view.since_s[0], view.unread_tokens[0], view.run_tokens[0]) == (2, 7.0, 12.0, 3.0)
    assert table.column("state").tolist() == [2]
    assert table.row_of("a") == 0
    with pytest.raises(KeyError):
        table.set("gone", unread_tokens=1.0)
    with pytest.raises(KeyError):
        view.row_of("gone")


def test_rates_are_brought_into_their_range():
    from tokenflow.policy.urgency import runways

    rows = [
        running(str(i), rate_tok_s=rate, unread_tokens=100.0) for i, rate in enumerate([0.0, -3.0, math.inf, math.nan])
    ]
    assert runways(View.from_rows(rows, ENGINE), np.arange(4)).tolist() == [1_000.0, 1_000.0, 0.01, math.inf]


ENGINE = EngineView(NOW_S, 4, 0, 10_000, 5_000, host_total_tokens=10_000, host_free_tokens=5_000)


def waiting(rid, **values):
    return RequestView(rid, **{"arrival_s": NOW_S - 0.5, "rate_tok_s": 6.0, "context_tokens": 100.0, **values})


def running(rid, **values):
    return RequestView(
        rid, RequestState.RUNNING,
        **{"arrival_s": NOW_S - 50.0, "rate_tok_s": 6.0, "context_tokens": 100.0, "kv_device_tokens": 100.0,
           "is_started": True, "run_tokens": 100.0, "is_first_run": False, "unread_tokens": 6.0, **values},
    )  # fmt: skip


def paused(rid, **values):
    return RequestView(
        rid, RequestState.PREEMPTED,
        **{"arrival_s": NOW_S - 50.0, "rate_tok_s": 6.0, "context_tokens": 100.0, "kv_host_tokens": 100.0,
           "is_started": True, "unread_tokens": 6.0, "since_s": NOW_S - 5.0, **values},
    )  # fmt: skip


def test_the_helpers_describe_what_they_say():
    assert plan(View.from_rows([paused("p")], replace(ENGINE, slots_free=1)), Tunables()).starts[0].action in (
        Action.RESUME_LOAD,
        Action.RESUME_RECOMPUTE,
    )
