"""Demand from half of capacity to twice of it and back; one switch in, one out; who is served meanwhile."""

from dataclasses import replace

import numpy as np
import pytest
from toy_engine import Stream, ToyEngine

from tokenflow.policy.carry import Carry
from tokenflow.policy.costs import Costs
from tokenflow.policy.overload import (
    ENTER_AFTER_S,
    LEAVE_AFTER_S,
    admitted,
    advance,
    demand_rates,
    in_overload,
    needed_rates,
)
from tokenflow.policy.plan import Cause
from tokenflow.policy.states import RequestState, Variant
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.view import EngineView, RequestView, View

CAPACITY_TOK_S = 80.0
SLOTS, TOK_S = 4, 20.0


def note_admitted(engine, view):
    if engine.carry.is_overloaded:
        inside = admitted(view, Tunables())
        rids = {rid for rid, is_in in zip(view.rids, inside, strict=True) if is_in}
        engine.inside[engine.now_s] = rids, float(needed_rates(view)[inside].sum())


def sweep(variant=Variant.TOKENFLOW, extra=(), **tunables):
    """Four slots of 20 tok/s. Demand 0.5, then 2, then 0.5 of capacity, by streams of 10 tok/s that end."""
    streams = [Stream(f"base{i}", 0.0, 10.0, output_tokens=1_000) for i in range(4)]
    streams += [Stream(f"wave{i:02}", 10.0 + 0.1 * i, 10.0, output_tokens=250) for i in range(12)]
    streams += list(extra)
    engine = ToyEngine(
        streams, slots=SLOTS, tok_s=TOK_S, capacity_tok_s=CAPACITY_TOK_S, tunables=Tunables(variant=variant, **tunables)
    )
    engine.inside = {}  # time -> the admitted, and what they need of capacity
    engine.on_view = lambda view: note_admitted(engine, view)
    switches = []
    while engine.now_s < 110.0:
        before = engine.carry.is_overloaded
        engine.step()
        if engine.carry.is_overloaded != before:
            switches.append((engine.now_s, engine.carry.is_overloaded))
    return engine, switches


@pytest.fixture(scope="module")
def swept():
    return sweep()


def test_one_switch_in_and_one_out(swept):
    engine, switches = swept
    assert [state for _, state in switches] == [True, False]
    assert 11.0 < switches[0][0] < 16.0
    assert engine.carry.switch_count == 2


def test_the_admitted_do_not_stall(swept):
    engine, _ = swept
    for i in range(4):  # the set needs just what capacity is: with nothing to spare a swap may come a moment late
        assert engine.streams[f"base{i}"].buffer.stall_s < 0.5


def test_the_excess_waits_in_order_of_arrival_and_gets_in_when_it_fits(swept):
    engine, switches = swept
    (entered_s, _), (left_s, _) = switches
    begun = [(at, d.rid) for at, d in engine.log if not d.action.is_pause and entered_s < at < left_s]
    firsts = [
        rid for i, (_, rid) in enumerate(begun) if rid not in {r for _, r in begun[:i]} and rid.startswith("wave")
    ]
    fresh = [rid for rid in firsts if not any(d.rid == rid and at <= entered_s for at, d in engine.log)]
    assert fresh == sorted(fresh)
    assert all(stream.ended_s is not None for stream in engine.streams.values())


def test_there_is_no_storm_of_swaps(swept):
    """Fewer than one swap in two seconds for each slot, over the whole sweep."""
    engine, _ = swept
    assert len(engine.pauses()) < 110 * SLOTS / 2


def test_admission_is_closed_while_overloaded(swept):
    """Whoever begins in overload is one of the admitted at that moment, so what those need fits capacity."""
    engine, switches = swept
    (entered_s, _), (left_s, _) = switches
    begun = [(at, d) for at, d in engine.log if entered_s < at < left_s and not d.action.is_pause]
    assert begun
    assert all(decision.rid in engine.inside[at][0] for at, decision in begun)
    assert all(
        needed_tok_s <= CAPACITY_TOK_S + 1e-6 or len(rids) <= SLOTS for rids, needed_tok_s in engine.inside.values()
    )


def test_one_stream_whose_rate_alone_crosses_the_band():
    """0.6 of capacity all the time, and for a while one stream of half the capacity on top."""
    streams = [Stream(f"s{i}", 0.0, 12.0, output_tokens=900) for i in range(4)]
    streams.append(Stream("fast", 5.0, 40.0, output_tokens=300))
    engine = ToyEngine(streams, slots=5, tok_s=20.0, capacity_tok_s=80.0)
    states = []
    while engine.now_s < 60.0:
        engine.step()
        states.append(engine.carry.is_overloaded)
    assert sum(a != b for a, b in zip([False, *states], states, strict=False)) == 2
    assert len(engine.pauses()) <= 12
    assert all(engine.streams[f"s{i}"].buffer.stall_s == 0.0 for i in range(4))
    assert engine.streams["fast"].ended_s is not None


def test_the_paper_falls_back_to_plain_first_come_first_served():
    engine, switches = sweep(Variant.PAPER)
    assert [state for _, state in switches] == [True, False]
    (entered_s, _), (left_s, _) = switches
    assert not [d for at, d in engine.log if entered_s < at < left_s and d.action.is_pause]
    assert all(stream.ended_s is not None for stream in engine.streams.values())


def view_of(*rates, capacity_tok_s=100.0, slot_count=4, carry=None, **engine):
    rows = [RequestView(f"r{i}", rate_tok_s=rate, arrival_s=i, context_tokens=10) for i, rate in enumerate(rates)]
    view = EngineView(100.0, slot_count, 0, 1_000, 500, capacity_tok_s=capacity_tok_s, **engine)
    return View.from_rows(rows, view, carry)


def drive(ratios, step_s=0.1, tunables=None):
    carry, states = Carry(), []
    for ratio in ratios:
        state = advance(view_of(100.0 * ratio, carry=carry), tunables or Tunables(), step_s if states else 0.0)
        carry = Carry(0.0, state.is_overloaded, state.demand_ratio, state.beyond_s, state.switch_count)
        states.append(state.is_overloaded)
    return states


def test_it_begins_after_a_second_above_the_band_and_ends_after_five_below():
    states = drive([0.5] * 10 + [1.5] * 60 + [0.5] * 120)
    begins = states.index(True)
    ends = begins + states[begins:].index(False)
    above_s, below_s = (begins - 10) * 0.1, (ends - 70) * 0.1
    assert ENTER_AFTER_S <= above_s < ENTER_AFTER_S + 1.2  # the average needs a while to cross the band
    assert LEAVE_AFTER_S <= below_s < LEAVE_AFTER_S + 1.2


def test_inside_the_band_nothing_changes():
    assert not any(drive([0.95] * 200))
    states = drive([1.5] * 60 + [0.95] * 300)
    assert states[59:] == [True] * 301


def test_a_short_peak_is_no_overload():
    assert not any(drive([0.5] * 10 + [1.4] * 8 + [0.5] * 50))


def test_nobody_knows_a_capacity_then_there_is_no_overload():
    for capacity in (None, 0.0, float("nan"), float("inf")):
        state = advance(view_of(1e4, capacity_tok_s=capacity, carry=Carry(is_overloaded=True)), Tunables(), 1.0)
        assert not state.is_overloaded
        assert state.switch_count == 1


def test_demand_counts_live_readers_only():
    view = view_of(10.0, 20.0, float("nan"), 0.0)
    assert demand_rates(view).tolist() == [10.0, 20.0, 0.0, 0.1]
    states = np.array([7, 2, 0, 6], np.int8)
    assert demand_rates(replace(view, state=states)).tolist() == [0.0, 20.0, 0.0, 0.0]


def test_a_claim_beyond_what_one_stream_can_get_does_not_count():
    assert demand_rates(view_of(9_000.0, stream_limit_tok_s=40.0)).tolist() == [40.0]


def test_the_admitted_are_the_oldest_that_fit():
    assert admitted(view_of(40.0, 50.0, 10.0, 5.0, slot_count=2), Tunables()).tolist() == [True, True, True, False]
    assert admitted(view_of(40.0, 70.0, 10.0, slot_count=1), Tunables()).tolist() == [
        True,
        False,
        False,
    ]  # nobody overtakes
    assert admitted(view_of(500.0, 1.0, slot_count=1), Tunables()).tolist() == [True, False]  # the oldest is always in


def test_a_reader_with_much_unread_keeps_nobody_out():
    """Half a minute of runway asks for nothing yet, 15 s for half of the rate; what is negative or unknown for all."""
    view = view_of(60.0, 60.0, 60.0, slot_count=1)
    assert needed_rates(replace(view, unread_tokens=np.array([0.0, 900.0, 2_000.0]))).tolist() == [60.0, 30.0, 0.0]
    assert needed_rates(replace(view, unread_tokens=np.array([-5.0, np.nan, 0.0]))).tolist() == [60.0, 60.0, 60.0]
    assert admitted(view, Tunables()).tolist() == [True, False, False]
    assert admitted(replace(view, unread_tokens=np.array([1_800.0, 900.0, 0.0])), Tunables()).tolist() == [
        True,
        True,
        True,
    ]
    assert admitted(replace(view, unread_tokens=np.array([900.0, 0.0, 0.0])), Tunables()).tolist() == [
        True,
        True,
        False,
    ]


def test_runs_are_as_long_as_swaps_are_dear():
    """16 streams that take 10 ms each to load lose 0.16 s whenever the batch turns over: 3.2 s keep that to 5 %."""

    def quantum_s(bytes_per_token=1e6, slot_count=16, kv_total_tokens=159.0, has_excess=True, **tunables):
        view = view_of(*[10.0] * 16, slot_count=slot_count)
        costs = Costs(load_fixed_s=0.0, h2d_bytes_s=1e9)
        engine = replace(
            view.engine,
            kv_total_tokens=kv_total_tokens,
            kv_bytes_per_token=bytes_per_token,
            slot_count=slot_count,
            costs=costs,
        )
        return in_overload(replace(view, engine=engine), Tunables(**tunables), has_excess=has_excess).quantum_s

    assert quantum_s() == 3.0  # whole quanta
    assert quantum_s(quantum_s=0.5) == 3.0
    assert quantum_s(bytes_per_token=0.0) == 2.0
    assert quantum_s(bytes_per_token=float("nan")) == 2.0
    assert quantum_s(bytes_per_token=1e9) == 8.0
    assert quantum_s(slot_count=1) == 2.0
    assert quantum_s(kv_total_tokens=160.0) == 2.0  # all of it fits: nothing is moved
    assert quantum_s(quantum_s=20.0) == 30.0
    assert quantum_s(has_excess=False) == 3.0
    assert quantum_s(has_excess=False, kv_total_tokens=160.0) == 1.0  # everybody is supplied, for nothing


def test_no_slot_stands_empty_for_fast_readers():
    """Two ask for all of capacity, which two slots of four do not reach: the others run beside them."""
    fast = view_of(50.0, 50.0, 50.0, 50.0, 50.0, slot_count=4)
    assert admitted(fast, Tunables()).tolist() == [True, True, True, True, False]
    big = replace(fast, context_tokens=np.array([400.0, 400.0, 400.0, 10.0, 10.0]))
    assert admitted(big, Tunables()).tolist() == [True, True, False, False, False]  # side by side means on the device


def test_the_admitted_fit_into_both_memories():
    view = view_of(1.0, 1.0, 1.0)
    big = replace(view, context_tokens=np.array([600.0, 600.0, 10.0]))
    assert admitted(big, Tunables()).tolist() == [True, False, False]
    apart, ahead = Tunables(write_through=False), Tunables()
    small, large = (replace(big, engine=replace(view.engine, host_total_tokens=size)) for size in (300.0, 1210.0))
    assert admitted(small, apart).tolist() == [True, True, True]
    assert admitted(small, ahead).tolist() == [True, False, False], "copies of those who run fill it"
    assert admitted(large, ahead).tolist() == [True, True, True]


def test_what_can_never_run_and_what_is_held_takes_nobody_s_place():
    view = view_of(60.0, 60.0, 40.0)
    huge = replace(view, context_tokens=np.array([5_000.0, 10.0, 10.0]))
    assert admitted(huge, Tunables()).tolist() == [False, True, True]
    held = replace(view, is_held=np.array([True, False, False]))
    assert admitted(held, Tunables()).tolist() == [False, True, True]


def test_someone_outside_leaves_for_someone_inside():
    young = RequestView(
        "young", RequestState.RUNNING, arrival_s=50.0, rate_tok_s=60.0, is_started=True, run_tokens=100,
        is_first_run=False, context_tokens=10, kv_device_tokens=10,
    )  # fmt: skip
    old = RequestView(
        "old", RequestState.PREEMPTED, arrival_s=1.0, rate_tok_s=60.0, is_started=True, unread_tokens=60,
        context_tokens=10, kv_device_tokens=10,
    )  # fmt: skip
    engine = EngineView(100.0, 1, 0, 1_000, 500, capacity_tok_s=100.0)
    from tokenflow.policy.planner import plan

    made = plan(
        View.from_rows([young, old], engine, Carry(now_s=99.9, is_overloaded=True, demand_ratio=1.2)), Tunables()
    )
    assert [(d.rid, d.cause) for d in made.decisions] == [("young", Cause.OVERLOAD), ("old", Cause.OVERLOAD)]


def test_the_edges_of_the_admitted_set():
    assert admitted(view_of(60.0, 40.0), Tunables()).tolist() == [True, True]  # exactly the capacity
    view = view_of(1.0, 1.0)
    exact = replace(view, context_tokens=np.array([500.0, 500.0]))
    assert admitted(exact, Tunables()).tolist() == [True, True]  # exactly the memory
    whole = replace(view, context_tokens=np.array([1_000.0, 1.0]))
    assert admitted(whole, Tunables()).tolist() == [False, True]  # as large as the pool: cannot run
    done = replace(view_of(90.0, 20.0), state=np.array([6, 2], np.int8))
    assert admitted(done, Tunables()).tolist() == [False, True]
