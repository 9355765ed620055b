"""What it costs to pause and to come back; load against recompute; memory and writes."""

import numpy as np
import pytest
from policy_rows import ENGINE, decide, engine_with, paused, running, view_of, waiting

from tokenflow.policy.cadence import WRITE_GRAIN_TOKENS
from tokenflow.policy.costs import departures, restores
from tokenflow.policy.ledger import claims, freed_tokens, growth_tokens, open_ledger, unwritten_tokens
from tokenflow.policy.plan import Action
from tokenflow.policy.states import RequestState
from tokenflow.policy.tunables import Restore, Tunables
from tokenflow.policy.view import RequestView

FIRST = np.array([0])


def restore_of(row, restore=Restore.AUTO, **engine):
    found = restores(view_of(row, engine=engine_with(**engine)), FIRST, restore)
    return float(found.lead_s[0]), bool(found.is_load[0])


def departure_of(row, restore=Restore.AUTO, **engine):
    found = departures(view_of(row, engine=engine_with(**engine)), FIRST, restore)
    return float(found.evict_s[0]), float(found.load_s[0]), bool(found.is_write[0])


def test_loading_costs_its_bytes_and_recomputing_its_tokens():
    """100 tokens of 10 bytes over 10 kB/s: 0.1 s; at 1 ms a token recomputing takes as long: then it is loaded."""
    assert restore_of(paused("a")) == (pytest.approx(0.1), True)
    assert restore_of(paused("a"), costs={"prefill_s_per_token": 0.9e-3}) == (pytest.approx(0.09), False)
    assert restore_of(paused("a"), costs={"h2d_bytes_s": 9e3}) == (pytest.approx(0.1), False)


def test_the_crossover_moves_with_the_backlog():
    assert restore_of(paused("a"), costs={"prefill_s_per_token": 2e-3}) == (pytest.approx(0.1), True)
    busy = {"costs": {"prefill_s_per_token": 2e-3}, "h2d_backlog_bytes": 1_500.0}
    assert restore_of(paused("a"), **busy) == (pytest.approx(0.2), False)
    busy["h2d_backlog_bytes"] = 500.0
    assert restore_of(paused("a"), **busy) == (pytest.approx(0.15), True)


def test_the_crossover_moves_with_the_length():
    """With a fixed cost on the way from the host, short contexts are recomputed and long ones loaded."""
    costs = {"load_fixed_s": 0.05, "prefill_s_per_token": 2e-3}
    short = paused("a", context_tokens=20, kv_host_tokens=20)
    long = paused("a", context_tokens=400, kv_host_tokens=400)
    assert restore_of(short, costs=costs) == (pytest.approx(0.04), False)
    assert restore_of(long, costs=costs) == (pytest.approx(0.45), True)


def test_what_only_neither_side_has_is_recomputed_in_both_cases():
    half = paused("a", kv_host_tokens=60)
    lead_s, is_load = restore_of(half, costs={"prefill_s_per_token": 2e-3, "prefill_fixed_s": 0.01})
    assert is_load
    assert lead_s == pytest.approx(0.06 + 40 * 2e-3 + 0.01)


def test_kv_that_never_left_costs_nothing():
    resident = paused("a", kv_device_tokens=100, kv_host_tokens=100, kv_both_tokens=100)
    for restore in Restore:
        assert restore_of(resident, restore) == (0.0, True)
    part = paused("a", kv_device_tokens=70, kv_both_tokens=70)
    assert restore_of(part)[0] == pytest.approx(0.03)


def test_the_way_back_can_be_ordered():
    cheap = {"costs": {"prefill_s_per_token": 1e-5}}
    assert restore_of(paused("a"), Restore.LOAD, **cheap) == (pytest.approx(0.1), True)
    assert restore_of(paused("a"), Restore.RECOMPUTE) == (pytest.approx(0.1), False)


def test_a_waiting_request_needs_its_prefill_less_its_prefix():
    costs = {"prefill_fixed_s": 0.02}
    assert restore_of(waiting("a"), costs=costs)[0] == pytest.approx(0.12)
    assert restore_of(waiting("a", kv_device_tokens=80), costs=costs)[0] == pytest.approx(0.04)


def test_evicting_costs_what_is_not_written_yet_and_the_queue():
    slow = {"prefill_s_per_token": 1.0}
    assert departure_of(running("a"), costs=slow) == (pytest.approx(0.1), pytest.approx(0.1), True)
    ahead = running("a", kv_host_tokens=90, kv_both_tokens=90)
    assert departure_of(ahead, costs=slow) == (pytest.approx(0.01), pytest.approx(0.1), True)
    queued = {"d2h_backlog_bytes": 2_000.0, "h2d_backlog_bytes": 1_000.0}
    assert departure_of(ahead, costs=slow, **queued) == (pytest.approx(0.21), pytest.approx(0.2), True)
    fixed = {**slow, "evict_fixed_s": 0.5, "load_fixed_s": 0.25}
    assert departure_of(ahead, costs=fixed) == (pytest.approx(0.51), pytest.approx(0.35), True)
    done = running("a", kv_host_tokens=100, kv_both_tokens=100)
    assert departure_of(done, costs=fixed, **queued)[0] == 0.0


def test_a_full_host_leaves_only_recomputing():
    assert departure_of(running("a"), costs={"prefill_s_per_token": 1.0}, host_free_tokens=99) == (0.0, 100.0, False)
    assert departure_of(running("a"), costs={"prefill_s_per_token": 1.0}, host_free_tokens=100)[2]
    assert departure_of(running("a"), Restore.LOAD, host_free_tokens=99)[2] is False


def test_what_is_cheaper_recomputed_is_not_written():
    assert departure_of(running("a"), costs={"prefill_s_per_token": 1e-4}) == (0.0, pytest.approx(0.01), False)
    assert departure_of(running("a"), Restore.LOAD, costs={"prefill_s_per_token": 1e-4})[2]
    assert departure_of(running("a"), Restore.RECOMPUTE, costs={"prefill_s_per_token": 1.0})[2] is False


def claim_of(row, tunables=None, **engine):
    found = claims(view_of(row, engine=engine_with(**engine)), tunables or Tunables(), FIRST)
    return found.tokens[0], found.own_tokens[0]


def test_a_start_claims_its_context_and_its_next_run():
    assert claim_of(waiting("a")) == (108, 0)
    assert claim_of(waiting("a", kv_device_tokens=60)) == (48, 0)
    assert claim_of(waiting("a", remaining_tokens=3)) == (103, 0)
    assert claim_of(waiting("a"), page_tokens=16) == (112, 0)
    assert claim_of(paused("a")) == (150, 0)  # a quantum of 1 s at 0.02 s a step
    assert claim_of(paused("a"), Tunables(quantum_s=0.0)) == (108, 0)
    assert claim_of(paused("a"), Tunables(quantum_s=30.0)) == (356, 0)
    assert claim_of(waiting("a", context_tokens=9_995)) == (10_000, 0)  # near the pool's size


def test_what_a_paused_stream_holds_is_its_own():
    kept = paused("a", kv_device_tokens=100, kv_host_tokens=70, kv_both_tokens=70)
    assert claim_of(kept) == (120, 30)
    assert unwritten_tokens(view_of(kept), FIRST) == [30]
    shared = paused("a", kv_device_tokens=100, kv_host_tokens=70, kv_both_tokens=70, kv_shared_tokens=20)
    assert claim_of(shared) == (100, 30)


def test_the_ledger_counts_what_can_be_had():
    rows = [
        running("r"),
        paused("p", kv_device_tokens=100, kv_host_tokens=70, kv_both_tokens=70),
        RequestView("f", RequestState.PREFILLING, context_tokens=200, kv_device_tokens=50),
        RequestView("l", RequestState.LOADING, context_tokens=100, kv_device_tokens=100),
    ]
    ledger = open_ledger(view_of(*rows, engine=engine_with(kv_free_tokens=1_000, slots_free=2)), 1)
    assert ledger.slots == 2
    assert ledger.free_tokens == 1_000 - 8 + 70 - 151 - 1
    assert ledger.unwritten_tokens == 30
    assert not ledger.is_idle
    assert ledger.lacks_tokens(918, 0) == 0.0
    assert ledger.lacks_tokens(941, 0) == 1.0
    assert ledger.lacks_tokens(941, 10) == 11.0
    ledger.host_free_tokens = 5.0
    assert ledger.lacks_tokens(941, 0) == 26.0
    assert not ledger.can_take(941, 0)
    ledger.take(914, 0)
    assert (ledger.slots, ledger.free_tokens, ledger.unwritten_tokens, ledger.host_free_tokens) == (1, 0.0, 26.0, 1.0)


def test_growth_is_counted_in_pages():
    rows = [running("a", context_tokens=15), running("b", context_tokens=16), running("c", context_tokens=10)]
    both = np.arange(3)
    assert growth_tokens(view_of(*rows), both) == 6
    assert growth_tokens(view_of(*rows, engine=engine_with(page_tokens=16)), both) == 32
    assert freed_tokens(view_of(running("a", kv_shared_tokens=30)), FIRST) == [70]


def writes_of(*rows, **engine):
    tunables = engine.pop("tunables", {})
    made = decide(*rows, engine=engine_with(**engine), **tunables)
    return [(write.rid, write.tokens) for write in made.writes]


FAST = {"costs": {"d2h_bytes_s": 1e6}}  # a budget of 0.8 x 0.02 s x 1 MB/s = 16 kB = 1,600 tokens


def test_the_longest_runway_is_written_first():
    rows = [running("poor", 0.1), running("rich", 9.0), running("middle", 2.0)]
    assert writes_of(*rows, **FAST) == [("rich", 100), ("middle", 100), ("poor", 100)]


def test_writes_stay_within_the_budget_of_a_step():
    rows = [running("a", 9.0), running("b", 8.0)]
    assert writes_of(*rows, costs={"d2h_bytes_s": 75_000.0}) == [("a", 100), ("b", 20)]
    assert writes_of(*rows, costs={"d2h_bytes_s": 75_000.0}, d2h_backlog_bytes=500.0) == [("a", 70)]
    assert writes_of(*rows, costs={"d2h_bytes_s": 75_000.0}, d2h_backlog_bytes=1_300.0) == []
    assert writes_of(*rows, costs={"d2h_bytes_s": 75_000.0}, tunables={"transfer_budget_ratio": 0.0}) == []


def test_only_what_is_new_and_in_whole_pages_is_written():
    rows = [
        running("a", 9.0, kv_host_tokens=60, kv_both_tokens=60),
        running("b", kv_host_tokens=100, kv_both_tokens=100),
    ]
    assert writes_of(*rows, **FAST) == [("a", 40)]
    assert writes_of(*rows, **FAST, page_tokens=16) == [("a", 32)]


def test_pieces_that_nobody_would_write_are_not_listed():
    """The engine and the simulator leave out what is shorter than the grain: the policy spends no budget on it."""
    grain = WRITE_GRAIN_TOKENS

    def lacking(rid, runway_s, tokens):
        return running(rid, runway_s, kv_host_tokens=100 - tokens, kv_both_tokens=100 - tokens)

    rows = [lacking("short", 9.0, grain - 1), lacking("enough", 8.0, grain), lacking("long", 7.0, 60)]
    assert writes_of(*rows, **FAST) == [("enough", grain), ("long", 60)]
    both = {"d2h_bytes_s": (grain + 60 + 0.5) / 0.0016}  # of the budget the short one takes nothing
    assert writes_of(*rows, costs=both) == [("enough", grain), ("long", 60)]
    assert writes_of(*rows, **FAST, host_free_tokens=grain + 5) == [("enough", grain)]  # 5 more are too short


def test_no_more_is_written_than_the_host_has_room_for():
    assert writes_of(running("a"), **FAST, host_free_tokens=30) == [("a", 30)]
    assert writes_of(running("a"), **FAST, host_free_tokens=0) == []
    assert writes_of(running("a"), **FAST, kv_bytes_per_token=0.0) == []


def test_without_write_through_arrivals_are_anticipated():
    off = {"tunables": {"write_through": False}}
    arrivals = {"d2h_bytes_s": 1e6, "arrival_rate_per_s": 10.0, "evict_tail_s": 0.1, "mean_kv_tokens": 130.0}
    rows = [running("a", 9.0), running("b", 8.0)]
    assert writes_of(*rows, costs={**arrivals, "arrival_rate_per_s": 0.0}, **off) == []
    assert writes_of(*rows, costs=arrivals, **off) == [("a", 100), ("b", 30)]
    ready = [running("a", 9.0, kv_host_tokens=100, kv_both_tokens=100), running("b", 8.0)]
    assert writes_of(*ready, costs=arrivals, **off) == [("b", 30)]


def test_whoever_leaves_is_not_written_twice():
    made = decide(waiting("w"), running("a", 9.0), engine=engine_with(**FAST, kv_free_tokens=16), restore=Restore.LOAD)
    assert [(d.rid, d.action) for d in made.pauses] == [("a", Action.PAUSE_OFFLOAD)]
    assert made.writes == ()


def test_paused_streams_make_room_before_anybody_leaves():
    """The longest runway first; what is written is dropped, the rest written as far as the host has room."""
    rich = paused("rich", 9.0, kv_device_tokens=100, kv_host_tokens=80, kv_both_tokens=80)
    poor = paused("poor", 5.0, kv_device_tokens=100, kv_host_tokens=100, kv_both_tokens=100)
    engine = engine_with(slots_free=1, kv_free_tokens=5)
    made = decide(waiting("w"), rich, poor, engine=engine)
    assert made.pauses == ()
    assert [d.rid for d in made.starts] == ["w"]
    assert [(r.rid, r.tokens, r.write_tokens) for r in made.releases] == [("rich", 100, 20), ("poor", 100, 0)]


def test_who_runs_can_grow_at_the_cost_of_paused_copies_even_with_a_full_host():
    kept = paused("kept", 9.0, kv_device_tokens=100, kv_host_tokens=0, kv_both_tokens=0)
    made = decide(running("r"), kept, engine=engine_with(kv_free_tokens=1, host_free_tokens=0))
    assert made.pauses == ()
    assert [(r.rid, r.tokens, r.write_tokens) for r in made.releases] == [("kept", 100, 0)]
    for_a_start = decide(waiting("w"), running("r"), kept, engine=engine_with(
        slots_free=1, kv_free_tokens=20, host_free_tokens=0
    ))  # fmt: skip
    assert for_a_start.starts == for_a_start.releases == ()


def test_where_nobody_runs_somebody_can_always_start():
    kept = [paused(f"k{i}", 9.0, kv_device_tokens=100, kv_host_tokens=0, kv_both_tokens=0) for i in range(3)]
    engine = engine_with(slots_free=1, kv_free_tokens=0, host_free_tokens=0, kv_total_tokens=300)
    made = decide(waiting("w", arrival_s=0.0), *kept, engine=engine)
    assert len(made.starts) == 1
    assert sum(r.tokens for r in made.releases) >= 50


def test_the_engine_s_defaults_are_usable():
    assert decide(running("r"), waiting("w"), engine=ENGINE).writes != ()


def test_of_very_many_the_same_are_written():
    """The shortcut for many rows gives what sorting all of them would."""
    rows = [running(f"r{i:04}", 1.0 + 0.01 * ((i * 7919) % 1500)) for i in range(1500)]

    def likely(row):  # those with more than 10 s are far ahead and leave last
        return -row.unread_tokens if row.unread_tokens <= 60.0 else row.unread_tokens

    expected = [row.rid for row in sorted(rows, key=likely)]
    engine = {"costs": {"d2h_bytes_s": 1e6}, "host_free_tokens": 10**9, "kv_free_tokens": 10**9, "slots_free": 0}
    assert [rid for rid, _ in writes_of(*rows, **engine)] == expected[:16]
    wide = {**engine, "costs": {"d2h_bytes_s": 1e9}}
    assert [rid for rid, _ in writes_of(*rows, **wide)] == expected


def test_a_copy_that_was_lent_has_to_be_found_again():
    kept = paused("p", kv_device_tokens=100, kv_host_tokens=0, kv_both_tokens=0)
    ledger = open_ledger(view_of(kept, running("r"), engine=engine_with(kv_free_tokens=68, slots_free=2)), 1)
    assert (ledger.free_tokens, ledger.unwritten_tokens) == (60, 100)
    assert ledger.lacks_tokens(20, 100) == 0
    ledger.take(130, 0)
    assert (ledger.free_tokens, ledger.unwritten_tokens) == (0, 30)
    assert ledger.lacks_tokens(20, 100) == 90
    ledger.free_tokens += 90
    ledger.take(20, 100)
    assert (ledger.free_tokens, ledger.unwritten_tokens, ledger.slots) == (0, 0, 0)
