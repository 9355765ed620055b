"""Why: every term behind a decision about one request, computed when somebody asks."""

import math

import numpy as np

from tokenflow.policy.buffer import sane_rate
from tokenflow.policy.costs import departures, restores
from tokenflow.policy.explanation import Explanation, Term, rounded
from tokenflow.policy.ledger import claims, open_ledger
from tokenflow.policy.overload import admitted, demand_rates, in_overload
from tokenflow.policy.plan import Plan
from tokenflow.policy.safety import required_tokens
from tokenflow.policy.seekers import CAUSES, NOTHING, classify
from tokenflow.policy.standing import standing
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.turn import Turn, open_turn
from tokenflow.policy.urgency import Urgencies, far_ahead, urgencies
from tokenflow.policy.victims import may_leave
from tokenflow.policy.view import PREEMPTED, RUNNING, WAITING, StateCode, View


def explain(view: View, tunables: Tunables, plan: Plan, rid: str) -> Explanation:
    """Why one request stands where it does, under the plan that was made of this view. Raises KeyError."""
    row = view.row_of(rid)
    stands = standing(view, tunables, plan)
    code = int(view.state[row])
    terms = _common_terms(view, tunables, plan, row)
    if code == RUNNING:
        terms |= _running_terms(view, tunables, row)
    elif code <= PREEMPTED:
        terms |= _seeker_terms(view, tunables, row)
    terms |= _decision_terms(view, plan, row)
    runway_s, required_s = float(stands.runway_s[row]), float(stands.required_runway_s[row])
    has_reader = math.isfinite(runway_s)
    rate = sane_rate(float(view.rate_tok_s[row]))
    reason = stands.reasons[row]
    return Explanation(
        runway_s=runway_s if has_reader else None,
        required_runway_s=required_s if has_reader else None,
        required_tokens=required_tokens(rate, required_s) if has_reader and rate is not None else None,
        preemptible=bool(stands.preemptible[row]),
        rid=rid,
        state=str(StateCode(code).state),
        reason=None if reason is None else str(reason),
        terms=rounded(terms),
    )


def _common_terms(view: View, tunables: Tunables, plan: Plan, row: int) -> dict[str, Term]:
    engine, carry = view.engine, plan.carry
    return {
        "unread_tokens": float(view.unread_tokens[row]),
        "rate_tok_s": sane_rate(float(view.rate_tok_s[row])),
        "dry_s": float(view.dry_s[row]),
        "in_state_s": engine.now_s - float(view.since_s[row]),
        "context_tokens": float(view.context_tokens[row]),
        "kv_device_tokens": float(view.kv_device_tokens[row]),
        "kv_host_tokens": float(view.kv_host_tokens[row]),
        "schedule_s": engine.costs.schedule_s,
        "slots_free": engine.slots_free,
        "kv_free_tokens": float(engine.kv_free_tokens),
        "capacity_tok_s": engine.capacity_tok_s,
        "demand_tok_s": float(demand_rates(view).sum()),
        "demand_ratio": carry.demand_ratio,
        "is_overloaded": carry.is_overloaded,
        "is_admitted": bool(admitted(view, tunables)[row]) if carry.is_overloaded else None,
        "is_held": bool(view.is_held[row]),
        "swap_credit": carry.swap_credit,
    }


def _running_terms(view: View, tunables: Tunables, row: int) -> dict[str, Term]:
    rows = np.array([row], np.intp)
    turn = open_turn(view, tunables)
    away = departures(view, rows, tunables.restore)
    leaves = may_leave(turn, bool((~view.is_started[turn.seekers]).any()))
    return {
        "evict_s": float(away.evict_s[0]),
        "load_s": float(away.load_s[0]),
        "keeps_kv": "host" if away.is_write[0] else "recompute",
        "safety_factor": tunables.safety_factor,
        "may_leave_now": bool(leaves[turn.running == row][0]),
        "is_far_ahead": bool(far_ahead(view, tunables, rows)[0]),
        "quantum_s": tunables.quantum_s,
    }


def _seeker_terms(view: View, tunables: Tunables, row: int) -> dict[str, Term]:
    turn = open_turn(view, tunables)
    rows = np.array([row], np.intp)
    is_waiting = int(view.state[row]) == WAITING
    terms, place, want = _among_seekers(turn, row)
    back = restores(view, rows, tunables.restore)
    asked = claims(view, tunables, rows)
    ledger = open_ledger(view, turn.running.size)
    return {
        "slack_s": float(terms.slack_s[place]),
        "lead_s": float(terms.lead_s[place]),
        "starving_s": float(terms.starving_s[place]),
        "ageing_s": float(terms.starving_s[place]) / tunables.starvation_bound_s,
        "urgency_s": float(terms.urgency_s[place]),
        "starts_by": "prefill" if is_waiting else "load" if back.is_load[0] else "recompute",
        "asks_as": None if want == NOTHING else str(CAUSES[want]),
        "claim_tokens": asked.tokens[0],
        "lacking_tokens": ledger.lacks_tokens(asked.tokens[0], asked.own_tokens[0]),
    }


def _among_seekers(turn: Turn, row: int) -> tuple[Urgencies, int, int]:
    """The terms, the row's place in them and what it asks as: its urgency and that depend on who else waits."""
    view, tunables, rows = turn.view, turn.tunables, turn.seekers
    if turn.is_overloaded:
        inside = admitted(view, tunables)
        turn.tunables = in_overload(view, tunables, has_excess=not inside[rows].all())
        rows = rows[inside[rows]]
    place = (rows == row).nonzero()[0]
    if not place.size:  # an operator holds it, it is too large, or it is outside the admitted set
        return urgencies(view, tunables, np.array([row], np.intp)), 0, NOTHING
    terms = urgencies(view, tunables, rows)
    return terms, int(place[0]), int(classify(turn, rows, terms).wants[place[0]])


def _decision_terms(view: View, plan: Plan, row: int) -> dict[str, Term]:
    for decision in plan.decisions:
        if decision.row == row:
            return {
                "action": str(decision.action),
                "cause": str(decision.cause),
                "benefit_s": decision.benefit_s,
                "required_of_victim_s": decision.required_runway_s,
                "partner": None if decision.partner_row is None else view.rids[decision.partner_row],
            }
    return {"action": None}
