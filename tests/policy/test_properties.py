"""What must hold for every variant, on any view."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policy_views import check_causes, check_memory, check_structure, check_swaps, tunables, views

from tokenflow.policy.planner import plan
from tokenflow.policy.states import Variant
from tokenflow.policy.view import StateCode, View

EVERY = pytest.mark.parametrize("variant", list(Variant))
PREEMPTIVE = pytest.mark.parametrize("variant", [Variant.TOKENFLOW, Variant.PAPER, Variant.GUIDE])
relaxed = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))


@EVERY
@settings(relaxed, max_examples=150)
@given(data=st.data(), view=views())
def test_a_plan_is_valid(variant, data, view):
    """No request lost or in two states; slots and memory never exceeded; nobody below the safety condition paused but
    for the exceptions; no swap that frees nothing; nobody leaves within the quantum; the view is not written to."""
    values = data.draw(tunables(variant))
    before = {f.name: np.copy(getattr(view, f.name)) for f in fields(View) if f.name not in ("engine", "rids", "carry")}
    made = plan(view, values)
    check_structure(view, made)
    check_memory(view, made)
    check_causes(view, made, values)
    check_swaps(view, made, values)
    for name, column in before.items():
        np.testing.assert_array_equal(getattr(view, name), column)


@EVERY
@relaxed
@given(data=st.data(), view=views())
def test_the_same_view_gives_the_same_plan_in_any_order_of_rows(variant, data, view):
    values = data.draw(tunables(variant))
    made = plan(view, values)
    assert plan(view, values) == made
    order = np.array(data.draw(st.permutations(range(len(view)))), dtype=np.intp)
    shuffled = {f.name: getattr(view, f.name)[order] for f in fields(View) if f.name not in ("engine", "rids", "carry")}
    other = plan(View(view.engine, [view.rids[i] for i in order], carry=view.carry, **shuffled), values)
    assert _by_rid(view, made) == _by_rid(other_view := replace(view, rids=[view.rids[i] for i in order]), other)
    assert len(other_view.rids) == len(view)


@EVERY
@relaxed
@given(data=st.data(), view=views())
def test_who_waits_beyond_the_bound_starts_where_there_is_room(variant, data, view):
    """Room: a free slot and free pages for its context, its first run and the growth of those who run."""
    values = data.draw(tunables(variant))
    made = plan(view, values)
    row = _longest_without(view)
    if made.is_overloaded or row is None or view.engine.now_s - view.since_s[row] < values.starvation_bound_s:
        return
    if variant is Variant.FCFS and row != _oldest(view):
        return
    page, state = view.engine.page_tokens, view.state
    running = (state == StateCode.RUNNING).sum()
    arriving = (state == StateCode.PREFILLING) | (state == StateCode.LOADING)
    wanted = view.context_tokens[row] + values.first_run_tokens + page + running * max(page, 8)
    wanted += np.maximum(view.context_tokens[arriving] + 1 + page - view.kv_device_tokens[arriving], 0).sum()
    if view.engine.slots_free > 0 and view.engine.kv_free_tokens >= wanted:
        assert row in {d.row for d in made.starts}


@PREEMPTIVE
@relaxed
@given(data=st.data(), view=views())
def test_who_waits_beyond_the_bound_starts_where_safe_requests_hold_the_place(variant, data, view):
    """Everybody who runs is safe for an hour, long past the quantum, and there are pages: somebody makes room."""
    values = data.draw(tunables(variant))
    hour = {"unread_tokens": np.where(view.is_started, 3600.0 * 100, view.unread_tokens)}
    hour["since_s"] = np.where(view.state == StateCode.RUNNING, 0.0, view.since_s)
    engine = replace(view.engine, kv_free_tokens=10**6, kv_total_tokens=10**6 + view.kv_device_tokens.sum())
    view = replace(view, engine=engine, **hour)
    row = _longest_without(view)
    made = plan(view, values)
    if made.is_overloaded or row is None or view.engine.now_s - view.since_s[row] < values.starvation_bound_s:
        return
    credit = values.max_swaps_per_s >= 1 and (view.carry.swap_credit is None or view.carry.swap_credit >= 1)
    could_leave = (view.state == StateCode.RUNNING) & view.may_pause & ~view.is_held & view.is_started
    could_leave &= (view.run_tokens >= 1) & (view.remaining_tokens >= 50)
    if view.engine.slots_free > 0 or (could_leave.any() and credit):
        assert row in {d.row for d in made.starts}


def _by_rid(view, made):
    def partner(decision):
        return None if decision.partner_row is None else view.rids[decision.partner_row]

    return (
        [(d.rid, d.action, d.cause, partner(d)) for d in made.decisions],
        sorted((w.rid, w.tokens) for w in made.writes),
        [(r.rid, r.tokens) for r in made.releases],
        made.is_overloaded,
    )


def _seekers(view):
    return [
        i for i in range(len(view)) if view.state[i] in (StateCode.WAITING, StateCode.PREEMPTED) and not view.is_held[i]
    ]


def _longest_without(view):
    """The waiting row that has gone without for longest, if it is waiting (not paused) and longest of all."""
    rows = _seekers(view)
    if not rows:
        return None

    def gone_s(row):
        is_read = view.is_started[row] and not np.isnan(view.rate_tok_s[row])
        return view.dry_s[row] if is_read else view.engine.now_s - view.since_s[row]

    longest = min(rows, key=lambda row: (-gone_s(row), view.arrival_s[row], view.serial[row]))
    return longest if view.state[longest] == StateCode.WAITING else None


def _oldest(view):
    return min(_seekers(view), key=lambda row: (view.arrival_s[row], view.serial[row]))
