"""Views for property tests: consistent ones, and ones full of what must never be seen."""

import math

from hypothesis import strategies as st

from tokenflow.policy.carry import Carry
from tokenflow.policy.costs import Costs
from tokenflow.policy.plan import Action, Cause
from tokenflow.policy.states import RequestState
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.view import EngineView, RequestView, StateCode, View

S = RequestState
NOW_S = 1_000.0
HOLDERS = (S.RUNNING, S.PREFILLING, S.LOADING)


@st.composite
def requests(draw, index):
    state = draw(st.sampled_from([S.WAITING, S.PREEMPTED, S.RUNNING, S.RUNNING, S.PREFILLING, S.LOADING, S.FINISHED]))
    context = draw(st.integers(1, 400))
    device = host = both = 0
    if state is S.RUNNING:
        device = context
        both = host = draw(st.integers(0, device))
    elif state is S.PREEMPTED:
        device = draw(st.sampled_from([0, context, context // 2]))
        both = draw(st.integers(0, device))
        host = both + draw(st.integers(0, context - device))
    elif state in (S.PREFILLING, S.LOADING):
        device = draw(st.integers(0, context))
    waited_s = draw(st.sampled_from([0.0, 0.2, 0.9, 3.0, 29.0, 31.0, 200.0]))
    unread = draw(st.sampled_from([0, 1, 5, 20, 100, 1_000]))
    started = state in (S.PREEMPTED, S.RUNNING, S.LOADING) and draw(st.booleans() | st.just(True))
    return RequestView(
        rid=f"r{index}", state=state, arrival_s=NOW_S - waited_s - draw(st.sampled_from([0.0, 1.0, 50.0])),
        since_s=NOW_S - waited_s, rate_tok_s=draw(st.sampled_from([math.nan, 0.5, 2.0, 6.0, 20.0, 100.0])),
        unread_tokens=unread if started else 0, dry_s=waited_s if started and not unread else 0.0, is_started=started,
        run_tokens=draw(st.sampled_from([0, 1, 8, 300])), is_first_run=draw(st.booleans()), context_tokens=context,
        remaining_tokens=draw(st.sampled_from([1, 50, 1_000])), length_tokens=draw(st.sampled_from([100, 4_000])),
        kv_device_tokens=device, kv_host_tokens=host, kv_both_tokens=both,
        kv_shared_tokens=draw(st.sampled_from([0, 0, device // 2])),
        may_pause=draw(st.sampled_from([True] * 4 + [False])),
        is_held=draw(st.sampled_from([False] * 6 + [True])),
    )  # fmt: skip


@st.composite
def views(draw, most=14):
    rows = [draw(requests(i)) for i in range(draw(st.integers(0, most)))]
    holders = sum(row.state in HOLDERS for row in rows)
    slots_free = draw(st.integers(0, 3))
    page = draw(st.sampled_from([1, 1, 16]))
    free = draw(st.sampled_from([0, 10, 60, 300, 5_000]))
    outstanding = sum(
        row.context_tokens - row.kv_device_tokens for row in rows if row.state in (S.PREFILLING, S.LOADING)
    )
    private = sum(row.kv_device_tokens - row.kv_shared_tokens for row in rows)
    host_used = sum(row.kv_host_tokens for row in rows)
    host_free = draw(st.sampled_from([0, 50, 100_000]))
    engine = EngineView(
        now_s=NOW_S, slot_count=holders + slots_free, slots_free=slots_free, page_tokens=page,
        kv_total_tokens=private + free + outstanding, kv_free_tokens=free + outstanding, kv_bytes_per_token=1_000.0,
        host_total_tokens=host_used + host_free, host_free_tokens=host_free,
        d2h_backlog_bytes=draw(st.sampled_from([0, 0, 10**6])), h2d_backlog_bytes=draw(st.sampled_from([0, 0, 10**6])),
        capacity_tok_s=draw(st.sampled_from([None, 20.0, 1_000.0])),
        costs=Costs(
            d2h_bytes_s=draw(st.sampled_from([1e5, 1e7])), h2d_bytes_s=draw(st.sampled_from([1e5, 1e7])),
            prefill_s_per_token=draw(st.sampled_from([1e-5, 1e-3])), schedule_s=draw(st.sampled_from([0.01, 0.3])),
            release_rate_per_s=draw(st.sampled_from([0.0, 5.0])), arrival_rate_per_s=draw(st.sampled_from([0.0, 3.0])),
            mean_kv_tokens=100.0,
        ),
    )  # fmt: skip
    carry = Carry(
        now_s=NOW_S - draw(st.sampled_from([0.03, 0.9])), is_overloaded=draw(st.booleans()),
        demand_ratio=draw(st.sampled_from([None, 0.5, 0.95, 1.4])), beyond_s=draw(st.sampled_from([0.0, 0.99, 4.9])),
        swap_credit=draw(st.sampled_from([None, 0.0, 1.0, 50.0])), slice_s=draw(st.sampled_from([0.5, 1.5])),
    )  # fmt: skip
    return View.from_rows(rows, engine, carry)


def tunables(variant):
    return st.builds(
        Tunables, variant=st.just(variant), safety_factor=st.sampled_from([1.0, 1.5, 20.0]),
        surplus_s=st.sampled_from([0.0, 2.0]), quantum_s=st.sampled_from([0.0, 1.0, 5.0]),
        max_swaps_per_s=st.sampled_from([0.0, 1.0, 50.0]), min_benefit_s=st.sampled_from([0.0, 0.05]),
        write_through=st.booleans(), max_unread_ratio=st.sampled_from([0.0, 0.1, 1.0]),
    )  # fmt: skip


def check_structure(view, plan):
    """What holds for every plan, whatever the view."""
    changed = [decision.row for decision in plan.decisions]
    assert len(changed) == len(set(changed)), "one change a request"
    for decision in plan.decisions:
        assert view.rids[decision.row] == decision.rid
    for decision in plan.pauses:
        assert decision.action.is_pause
        assert view.state[decision.row] == StateCode.RUNNING
        assert view.may_pause[decision.row] or decision.cause is Cause.OPERATOR
    for decision in plan.starts:
        assert not decision.action.is_pause
        assert view.state[decision.row] in (StateCode.WAITING, StateCode.PREEMPTED)
        assert (decision.action is Action.ADMIT) == (view.state[decision.row] == StateCode.WAITING)
        assert not view.is_held[decision.row]
    assert len(plan.starts) <= max(view.engine.slots_free, 0) + len(plan.pauses)
    started = {decision.row for decision in plan.starts}
    kept = {decision.row for decision in plan.pauses if decision.action is Action.PAUSE_KEEP}
    for release in plan.releases:
        assert view.state[release.row] == StateCode.PREEMPTED or release.row in kept
        assert release.row not in started
    for write in plan.writes:
        assert view.state[write.row] == StateCode.RUNNING
        assert write.tokens > 0


def check_memory(view, plan):
    """After everything the plan says is done, the device holds no more than it can, and the host neither."""
    engine = view.engine
    private = view.kv_device_tokens - view.kv_shared_tokens
    started = {decision.row for decision in plan.starts}
    free = engine.kv_free_tokens
    for row in range(len(view)):
        if view.state[row] in (StateCode.PREFILLING, StateCode.LOADING):
            free -= max(view.context_tokens[row] - view.kv_device_tokens[row], 0)
        elif view.state[row] == StateCode.PREEMPTED and row not in started:
            free += max(private[row], 0)  # dropped, or written and dropped (`releases`)
    for decision in plan.pauses:
        kept = decision.action is Action.PAUSE_KEEP
        freed = (
            view.kv_both_tokens[decision.row] - view.kv_shared_tokens[decision.row] if kept else private[decision.row]
        )
        free += max(freed, 0)
    for row in started:
        free -= view.context_tokens[row] - view.kv_device_tokens[row]
    if plan.starts:
        assert free >= 0
    offloaded = sum(
        max(view.kv_device_tokens[d.row] - max(view.kv_both_tokens[d.row], view.kv_shared_tokens[d.row]), 0)
        for d in plan.pauses
        if d.action is Action.PAUSE_OFFLOAD
    )
    assert offloaded <= engine.host_free_tokens + 1e-6
    assert sum(write.tokens for write in plan.writes) <= engine.host_free_tokens


def check_causes(view, plan, tunables):
    """Who may lose: whoever is safe, and the exceptions of the design, each under its own condition."""
    engine = view.engine
    for decision in plan.pauses:
        row = decision.row
        if decision.cause is Cause.OPERATOR:
            assert view.is_held[row]
        elif decision.cause is Cause.OVERLOAD:
            assert plan.is_overloaded
        elif decision.cause is Cause.STARVATION_BOUND:
            assert _gone_s(view, decision.partner_row) >= tunables.starvation_bound_s
        elif decision.cause is Cause.KV_FULL:
            assert engine.kv_free_tokens < 2 * engine.page_tokens * (view.state == StateCode.RUNNING).sum() + sum(
                view.context_tokens[i] + engine.page_tokens
                for i in range(len(view))
                if view.state[i] in (StateCode.PREFILLING, StateCode.LOADING)
            )
        elif not plan.is_overloaded:
            assert runway_s(view, row) >= least_required_s(view, decision, tunables) - 1e-6
    bounded = {d.partner_row for d in plan.pauses if d.cause is Cause.STARVATION_BOUND}
    assert len(bounded) <= 1


def least_required_s(view, decision, tunables):
    """The paper's condition, written out again: factor x (evict + load + schedule), by what becomes of the KV."""
    engine, costs, row = view.engine, view.engine.costs, decision.row
    evict_s = load_s = 0.0
    if decision.action is Action.PAUSE_OFFLOAD:
        unwritten = view.kv_device_tokens[row] - max(view.kv_both_tokens[row], view.kv_shared_tokens[row])
        if view.kv_device_tokens[row] > view.kv_both_tokens[row]:
            evict_s = (unwritten * engine.kv_bytes_per_token + engine.d2h_backlog_bytes) / costs.d2h_bytes_s
        load_s = (view.context_tokens[row] * engine.kv_bytes_per_token + engine.h2d_backlog_bytes) / costs.h2d_bytes_s
    elif decision.action is Action.PAUSE_DROP:
        load_s = view.context_tokens[row] * costs.prefill_s_per_token
    required_s = tunables.safety_factor * (evict_s + load_s + costs.schedule_s)
    if tunables.variant == "guide":
        return max(tunables.surplus_s, tunables.reserve_s)
    if (
        tunables.variant == "tokenflow"
        and decision.cause is Cause.FIRST_TOKEN
        and not _is_bound(view, decision, tunables)
    ):
        # What a victim needs beyond safety fades within a tenth of the bound, as the newcomer gets later.
        late_s = engine.now_s - view.arrival_s[decision.partner_row] - tunables.ttft_target_s
        left = min(max(1.0 - late_s / (0.1 * tunables.starvation_bound_s), 0.0), 1.0)
        return max(required_s, tunables.surplus_s * left)
    return required_s


def runway_s(view, row):
    if math.isnan(view.rate_tok_s[row]):
        return math.inf
    return view.unread_tokens[row] / view.rate_tok_s[row] if view.is_started[row] else 0.0


def _is_read(view, row):
    return bool(view.is_started[row]) and not math.isnan(view.rate_tok_s[row])


def _gone_s(view, row):
    """For how long it has gone without."""
    return view.dry_s[row] if _is_read(view, row) else view.engine.now_s - view.since_s[row]


def _is_bound(view, decision, tunables):
    return view.engine.now_s - view.since_s[decision.partner_row] >= tunables.starvation_bound_s


def check_swaps(view, plan, tunables):
    """Each swap serves somebody who starts, frees something, and stays within the quantum and the cap."""
    free_of_rules = (Cause.KV_FULL, Cause.OPERATOR)
    swaps = [d for d in plan.pauses if d.cause not in free_of_rules]
    assert {d.partner_row for d in swaps} <= {d.row for d in plan.starts}
    for newcomer in {d.partner_row for d in swaps}:
        victims = [d.row for d in swaps if d.partner_row == newcomer]
        freed = view.kv_device_tokens[victims] - view.kv_shared_tokens[victims]
        assert len(victims) == 1 or (freed > 0).sum() >= len(victims) - 1  # one at most leaves for its slot alone
    for decision in swaps:
        if not view.is_first_run[decision.row]:
            assert view.engine.now_s - view.since_s[decision.row] >= tunables.quantum_s - 1e-6
        assert view.run_tokens[decision.row] >= 1
    before = view.carry.swap_credit
    most = tunables.max_swaps_per_s
    allowed = most if before is None else min(before + most, max(most, 1.0))
    # Who is past the bound may take as many as it needs, where anything at all was allowed; the credit owes it then.
    bound_s, is_ours = tunables.starvation_bound_s, tunables.variant == "tokenflow"
    forced = sum(_gone_s(view, d.partner_row) >= bound_s for d in swaps) if is_ours else 0
    assert len(swaps) - forced <= allowed
    assert plan.carry.swap_credit >= -forced
    if tunables.variant == "fcfs":
        assert not swaps
