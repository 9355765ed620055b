"""Standing and explanations: the words and numbers that operators see."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from policy_rows import NOW_S, engine_with, paused, running, view_of, waiting

from tokenflow.policy.carry import Carry
from tokenflow.policy.explain import explain
from tokenflow.policy.explanation import explain_numbers
from tokenflow.policy.planner import plan
from tokenflow.policy.standing import standing
from tokenflow.policy.states import Reason, RequestState
from tokenflow.policy.tunables import Restore, Tunables
from tokenflow.policy.view import RequestView

FIGURES = {"evict_s": 0.08, "load_s": 0.22, "schedule_s": 0.02, "safety_factor": 1.5}
OVERLOADED = Carry(now_s=NOW_S - 0.02, is_overloaded=True, demand_ratio=1.5)
NAN = float("nan")


def reasons(*rows, engine=None, carry=None):
    view = view_of(*rows, engine=engine, carry=carry)
    return standing(view, Tunables(), plan(view, Tunables())).reasons


def test_why_each_request_is_where_it_is():
    rows = [
        running("rich", 1.9),
        running("poor", 0.01),
        waiting("new"),
        paused("p", 5.0),
        RequestView("f", RequestState.PREFILLING, context_tokens=9, kv_device_tokens=9),
        RequestView("l", RequestState.LOADING, context_tokens=9, kv_device_tokens=9),
        RequestView("d", RequestState.FINISHED),
    ]
    assert reasons(*rows) == [
        Reason.RUNNING_SURPLUS, Reason.RUNNING_STARVING, Reason.WAITING_CAPACITY, None, Reason.ADMITTED, Reason.LOADING,
        None,
    ]  # fmt: skip


def test_what_the_plan_changes_has_the_plan_s_reason():
    assert reasons(running("r", 9.0), waiting("w")) == [Reason.PREEMPTED_SURPLUS, Reason.ADMITTED]


def test_what_an_operator_holds_says_so_wherever_it_stands():
    held = [running("r", 9.0, is_held=True), waiting("w", is_held=True), paused("p", 5.0, is_held=True)]
    assert reasons(*held) == [Reason.PREEMPTED_OPERATOR] * 3
    crowd = engine_with(capacity_tok_s=7.0)
    assert reasons(waiting("w", is_held=True), engine=crowd, carry=OVERLOADED) == [Reason.PREEMPTED_OPERATOR]


def test_waiting_for_memory_and_outside_the_admitted():
    few = engine_with(slots_free=1, kv_free_tokens=20)
    assert reasons(waiting("w"), engine=few) == [Reason.WAITING_MEMORY]
    crowd = engine_with(capacity_tok_s=7.0, slot_count=1)
    found = reasons(running("r", rate_tok_s=6.0), waiting("w"), engine=crowd, carry=OVERLOADED)
    assert found[1] is Reason.OVERLOAD_FCFS


def test_required_runway_and_preemptible():
    rows = [running("rich", 5.0), running("poor", 0.05), running("fixed", 5.0, may_pause=False), paused("p", 5.0)]
    view = view_of(*rows, engine=engine_with(costs={"prefill_s_per_token": 1.0}))
    found = standing(view, Tunables(), plan(view, Tunables()))
    assert found.runway_s == pytest.approx([5.0, 0.05, 5.0, 5.0])
    assert found.required_runway_s[0] == pytest.approx(1.5 * (0.1 + 0.1 + 0.02))
    assert found.preemptible.tolist() == [True, False, False, False]


def explained(rid, *rows, engine=None, carry=None, **tunables):
    view = view_of(*rows, engine=engine, carry=carry)
    values = Tunables(**tunables)
    found = explain(view, values, plan(view, values), rid)
    json.dumps(asdict(found), allow_nan=False)
    return found


def test_a_running_request_is_explained():
    found = explained("r", running("r", 9.0), waiting("w"), restore=Restore.LOAD)
    assert (found.rid, found.state, found.reason, found.preemptible) == ("r", "running", "preempted_surplus", True)
    assert found.runway_s == 9.0
    assert found.required_runway_s == pytest.approx(0.33)
    assert found.required_tokens == 2
    terms = found.terms
    assert (terms["evict_s"], terms["load_s"], terms["schedule_s"], terms["safety_factor"]) == (0.1, 0.1, 0.02, 1.5)
    assert (terms["action"], terms["cause"], terms["partner"]) == ("pause_keep", "first_token", "w")
    assert terms["required_of_victim_s"] == 2.0
    assert terms["keeps_kv"] == "host"
    assert terms["may_leave_now"] is True
    assert terms["is_far_ahead"] is False


def test_a_waiting_request_is_explained():
    found = explained("w", running("r", 0.5), waiting("w"))
    assert (found.state, found.reason, found.preemptible) == ("waiting", "waiting_capacity", False)
    terms = found.terms
    assert terms["slack_s"] == pytest.approx(0.5)
    assert terms["lead_s"] == pytest.approx(0.1)
    assert terms["ageing_s"] == pytest.approx(0.5 / 30)
    assert terms["urgency_s"] == pytest.approx(0.5 - 0.1 - 0.5 / 30)
    assert (terms["asks_as"], terms["claim_tokens"], terms["lacking_tokens"]) == ("first_token", 108, 0)
    assert terms["action"] is None
    assert terms["is_admitted"] is None


def test_a_paused_request_is_explained():
    found = explained("p", running("r", 0.5), paused("p", 0.2), restore=Restore.RECOMPUTE)
    assert (found.state, found.reason) == ("preempted", None)
    assert found.terms["starts_by"] == "recompute"
    assert found.terms["asks_as"] == "rescue"
    assert explained("p", running("r", 0.5), paused("p", 9.0)).terms["asks_as"] is None


def test_nobody_reads_along():
    found = explained("b", running("b", rate_tok_s=NAN, unread_tokens=0.0))
    assert (found.runway_s, found.required_runway_s, found.required_tokens) == (None, None, None)
    assert found.terms["rate_tok_s"] is None


def test_overload_is_in_the_terms():
    crowd = engine_with(capacity_tok_s=7.0, slot_count=1)
    found = explained("w", running("r"), waiting("w"), engine=crowd, carry=OVERLOADED)
    assert found.terms["is_overloaded"] is True
    assert found.terms["is_admitted"] is False
    assert found.terms["demand_tok_s"] == 12.0
    assert found.terms["capacity_tok_s"] == 7.0


def test_a_request_that_is_not_there():
    view = view_of(running("r"))
    with pytest.raises(KeyError):
        explain(view, Tunables(), plan(view, Tunables()), "gone")


def test_the_article_s_numbers():
    ten, nine = explain_numbers(10, 20, **FIGURES), explain_numbers(9, 20, **FIGURES)
    assert ten.required_runway_s == pytest.approx(0.48)
    assert (ten.required_tokens, ten.runway_s, ten.preemptible) == (10, 0.5, True)
    assert (nine.runway_s, nine.preemptible) == (0.45, False)
    assert ten.terms["protected_tokens"] == 9.6
    assert ten.terms["margin_s"] == 0.02
    assert ten.terms["prefill_floor_s"] is None
    assert explain_numbers(20, 40, **FIGURES).preemptible
    assert not explain_numbers(10, 40, **FIGURES).preemptible


def test_numbers_that_cannot_be():
    assert explain_numbers(-5, 20).runway_s == 0.0
    assert explain_numbers(10, math.inf).terms["rate_tok_s"] == 10_000
    assert explain_numbers(10, 0.0).runway_s == 100.0
    assert explain_numbers(10, NAN).preemptible  # nobody reads
    assert explain_numbers(10, 20, prefill_s=0.5, reserve_s=0.5).required_runway_s == 1.0
    assert np.isfinite(explain_numbers(10, 20).required_runway_s)


def test_every_term_of_the_numbers():
    found = explain_numbers(10, 20, **FIGURES, prefill_s=0.1, reserve_s=0.25)
    assert found.terms == {
        "unread_tokens": 10, "rate_tok_s": 20, "evict_s": 0.08, "load_s": 0.22, "schedule_s": 0.02,
        "transition_s": 0.32, "safety_factor": 1.5, "protected_s": 0.48, "protected_tokens": 9.6, "prefill_s": 0.1,
        "reserve_s": 0.25, "prefill_floor_s": 0.35, "margin_s": 0.02,
    }  # fmt: skip
    bare = explain_numbers(10, 20)
    assert (bare.required_runway_s, bare.required_tokens, bare.preemptible) == (0.0, 0, True)
    assert bare.terms["safety_factor"] == 1.0
    assert bare.terms["reserve_s"] is None


COMMON = {
    "unread_tokens": 6.0, "rate_tok_s": 6.0, "dry_s": 0.0, "in_state_s": 50.0, "context_tokens": 100.0,
    "kv_device_tokens": 100.0, "kv_host_tokens": 0.0, "schedule_s": 0.02, "slots_free": 0, "kv_free_tokens": 5_000.0,
    "capacity_tok_s": 24.0, "demand_tok_s": 12.0, "demand_ratio": 0.5, "is_overloaded": False, "is_admitted": None,
    "is_held": False, "swap_credit": 50.0,
}  # fmt: skip


def test_every_term_of_a_running_request():
    engine = engine_with(capacity_tok_s=24.0)
    found = explained("r", running("r", 1.0), waiting("w"), engine=engine, restore=Restore.LOAD)
    assert found.terms == {
        **COMMON, "evict_s": 0.1, "load_s": 0.1, "keeps_kv": "host", "safety_factor": 1.5, "may_leave_now": True,
        "is_far_ahead": False, "quantum_s": 1.0, "action": None,
    }  # fmt: skip
    dropped = explained("r", running("r", 1.0), restore=Restore.RECOMPUTE)
    assert dropped.terms["keeps_kv"] == "recompute"


def test_every_term_of_a_seeker():
    engine = engine_with(capacity_tok_s=24.0, slots_free=1)
    found = explained("w", running("r", 1.0), waiting("w"), engine=engine)
    assert found.terms == {
        **COMMON, "unread_tokens": 0.0, "in_state_s": 0.5, "kv_device_tokens": 0.0, "slots_free": 1, "slack_s": 0.5,
        "lead_s": 0.1, "starving_s": 0.5, "ageing_s": 0.016666667, "urgency_s": 0.383333333, "starts_by": "prefill",
        "asks_as": "first_token", "claim_tokens": 108.0, "lacking_tokens": 0.0, "action": "admit",
        "cause": "free_place", "benefit_s": None, "required_of_victim_s": None, "partner": None,
    }  # fmt: skip
    assert (found.runway_s, found.required_tokens) == (0.0, 2)
