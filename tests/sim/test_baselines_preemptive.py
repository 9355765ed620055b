"""Baselines that preempt: Andes' knapsack and overhead test, FastServe's queues, PASCAL's phases."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_looks import COSTS, GPU, S, look, pauses, row, starts

from tokenflow.policy.costs import Costs
from tokenflow.policy.plan import Action
from tokenflow.quality.qoe import andes_qoe
from tokenflow.quality.record import StreamRecord
from tokenflow.sim.baselines import BASELINES, make_baseline
from tokenflow.sim.baselines.andes import HORIZON_S, Andes
from tokenflow.sim.baselines.andes_qoe import Readers, ReadingBook
from tokenflow.sim.baselines.mlfq import PROMOTION_S, PROMOTION_STEPS, Mlfq
from tokenflow.sim.baselines.pascal import MOST_REASONING_KV_TOKENS, QUANTUM_TOKENS, Pascal
from tokenflow.sim.engine import SimEngine
from tokenflow.sim.settings import EngineSettings
from tokenflow.sim.workload import SimRequest


def reader(rate=10.0, unread=0.0, read=0.0, area=0.0, due_s=0.0) -> Readers:
    return Readers(*(np.array([value]) for value in (rate, unread, read, area, due_s)))


def test_a_reader_who_is_served_in_time_has_a_perfect_horizon():
    assert reader(unread=5.0).served(10.0, 20.0, np.array([0.5]))[0] == pytest.approx(1.0)
    # Five tokens last half a second; then nothing comes for half a second more, and never catches up.
    late = reader(unread=5.0).served(10.0, 20.0, np.array([1.0]))[0]
    assert 0.85 < late < 1.0


def test_qoe_at_the_horizon_is_the_measure_that_reports_use():
    """100 tokens at 10 a second, due from 0 on, delivered at once 4 s late: the report's QoE at the end."""
    record = StreamRecord.of(-1.0, [4.0] * 200, 10.0)
    measured = andes_qoe(record, 1.0)
    end_s = float(4.0 + 199 / 10.0)  # when the reader is through
    predicted = reader(due_s=0.0).served(end_s, 1e6, np.array([4.0]))[0]
    # The report counts 200 tokens, the horizon what was due until then (40 more that had not come).
    assert predicted == pytest.approx(1 - 4.0 * 199 / 10 / (end_s**2 / 2) - 4.0**2 / 2 / (end_s**2 / 2), abs=1e-6)
    assert measured is not None
    assert abs(predicted - measured) < 0.06


@given(
    st.floats(1, 50), st.floats(0, 500), st.floats(0, 500), st.floats(-5, 30), st.floats(1, 100), st.floats(0, 5),
)  # fmt: skip
def test_serving_never_harms_and_delay_never_helps(rate, unread, read, due_s, tok_s, delay_s):
    one = reader(rate, unread, read, read * max(due_s, 0.0) / 2, due_s)
    waiting = one.waiting(HORIZON_S)[0]
    early, late = (one.served(HORIZON_S, tok_s, np.array([at]))[0] for at in (delay_s, delay_s + 1.0))
    assert 0.0 <= waiting <= late + 1e-9
    assert late <= early + 1e-9
    assert early <= 1.0


def test_the_book_follows_what_was_read():
    book = ReadingBook(ttft_target_s=1.0)
    running = row("a", S.RUNNING, made=40, unread_tokens=40.0)
    book.readers(look([running], now_s=5.0).view, np.array([40.0]))
    running = row("a", S.RUNNING, made=80, unread_tokens=60.0)
    found = book.readers(look([running], now_s=7.0).view, np.array([80.0]))
    assert found.read_tokens.tolist() == [20.0]
    assert found.read_area.tolist() == [20.0]  # from 0 to 20 tokens in two seconds
    assert found.due_s.tolist() == [6.0]


# At 10 s both have been read for nine seconds, 90 tokens.
AHEAD = row("ahead", S.RUNNING, prompt=100, made=490, unread_tokens=400.0, left=500)
NEAR = row("near", S.RUNNING, prompt=490, made=100, unread_tokens=10.0, left=500)


def test_andes_lends_the_place_of_whoever_has_most_to_read():
    plan = Andes().decide(look([AHEAD, NEAR, row("new", arrival_s=9.0)], slots=2))
    assert pauses(plan) == [("ahead", Action.PAUSE_KEEP)], "only the slot is lacking"
    assert starts(plan) == ["new"]
    full = Andes().decide(look([AHEAD, NEAR, row("new", arrival_s=9.0)], slots=2, kv=1250))
    assert (pauses(full), starts(full)) == ([("ahead", Action.PAUSE_OFFLOAD)], ["new"])
    assert pauses(Andes(swaps=False).decide(look([AHEAD, NEAR, row("new", arrival_s=9.0)], slots=2))) == [
        ("ahead", Action.PAUSE_DROP)
    ]


def test_an_exchange_that_does_not_pay_for_its_overhead_is_not_made():
    """A prefill of 8 s stalls those who are about to run dry by more than the newcomer gains."""
    slow = Costs(prefill_fixed_s=8.0, prefill_s_per_token=1e-4)
    near = [row(f"near{i}", S.RUNNING, made=100, unread_tokens=10.0) for i in range(6)]
    rows = [AHEAD, *near, row("new", arrival_s=9.0)]
    assert starts(Andes().decide(look(rows, slots=7, costs=slow))) == []
    assert starts(Andes().decide(look(rows, slots=7, costs=COSTS))) == ["new"]


def test_what_is_kept_for_nobodys_need_goes_before_anybody_is_taken_out_for_memory():
    kept = row("kept", S.PREEMPTED, prompt=600, made=100, unread_tokens=500.0, device=699)
    plan = Andes().decide(look([NEAR, kept, row("new", arrival_s=9.0)], slots=2, kv=1350))
    assert [release.rid for release in plan.releases] == ["kept"]
    assert (pauses(plan), starts(plan)) == ([], ["new"])


def test_each_join_is_priced_on_top_of_those_before_it():
    """A prefill of 0.9 s each: readers with a second of text bear one, and not all four at once."""
    slow = Costs(prefill_fixed_s=0.9, prefill_s_per_token=1e-6)
    near = [row(f"near{i}", S.RUNNING, made=100, unread_tokens=10.0) for i in range(24)]
    new = [row(f"new{i}", arrival_s=9.0 + i / 10) for i in range(4)]
    ahead = [row(f"ahead{i}", S.RUNNING, made=490, unread_tokens=400.0, left=500) for i in range(4)]
    alone = starts(Andes().decide(look([*ahead[:1], *near, new[0]], slots=25, costs=slow)))
    together = starts(Andes().decide(look([*ahead, *near, *new], slots=28, costs=slow)))
    assert alone == ["new0"]
    assert 1 <= len(together) < 4


def test_per_token_of_context_the_short_request_gains_more():
    rows = [AHEAD, row("long", prompt=4000, arrival_s=8.0), row("short", prompt=50, arrival_s=8.5)]
    assert starts(Andes().decide(look(rows, slots=1))) == ["short"]


def test_andes_leaves_everything_alone_while_all_fit():
    scheduler = Andes()
    plan = scheduler.decide(look([AHEAD, NEAR, row("new", arrival_s=9.0)], slots=3))
    assert (pauses(plan), starts(plan)) == ([], ["new"])
    assert scheduler.ask_again_s(look([AHEAD, NEAR], slots=3), plan) > 60.0  # until memory might be full


def test_a_short_prompt_joins_above_a_long_one():
    rows = [row("long", prompt=3000, arrival_s=1.0), row("short", prompt=20, arrival_s=2.0)]
    assert starts(Mlfq().decide(look(rows, slots=1))) == ["short"]


def test_a_used_quantum_sends_a_request_down_and_a_long_wait_brings_it_back():
    scheduler = Mlfq()
    assert starts(scheduler.decide(look([row("a", prompt=20)], now_s=10.0, slots=1))) == ["a"]
    running = row("a", S.RUNNING, prompt=20, made=2)
    # 20 tokens take 12 ms: level 1, a quantum of 20 ms. Used up, so that the newcomer at the same level goes first.
    late = row("b", prompt=20, arrival_s=10.01)
    plan = scheduler.decide(look([running, late], now_s=10.030, slots=1))
    assert (pauses(plan), starts(plan)) == ([("a", Action.PAUSE_KEEP)], ["b"])
    waits = row("a", S.PREEMPTED, prompt=20, made=2, device=21)
    busy = row("b", S.RUNNING, prompt=20, made=2)
    plan = scheduler.decide(look([waits, busy], now_s=10.035, slots=1))
    assert starts(plan) == []
    assert scheduler.ask_again_s(look([waits, busy], now_s=10.035, slots=1), plan) == pytest.approx(10.050)
    scheduler._jobs["a"].level = 12
    # After three seconds nothing yet; after 1,000 steps of 20 ms it is noticed.
    assert starts(scheduler.decide(look([waits, busy], now_s=10.031 + PROMOTION_S, slots=1))) == []
    assert starts(scheduler.decide(look([waits, busy], now_s=10.0 + 0.02 * PROMOTION_STEPS, slots=1))) == ["a"]


def test_where_memory_is_short_the_lowest_are_swapped_out_and_the_others_stay():
    rows = [
        row("low", S.RUNNING, prompt=3900, made=100, arrival_s=0.0),
        row("mid", S.RUNNING, prompt=3000, made=100, arrival_s=1.0),
        row("new", prompt=2900, arrival_s=2.0),
    ]
    scheduler = Mlfq()
    scheduler.decide(look(rows[:2], now_s=3.0))
    scheduler._jobs["low"].level = 12
    plan = scheduler.decide(look(rows, now_s=3.0, kv=9000))
    assert (pauses(plan), starts(plan)) == ([("low", Action.PAUSE_OFFLOAD)], ["new"])


def test_whoever_the_host_has_no_room_for_stays_and_new_prompts_wait_while_it_is_nearly_full():
    low, new = row("low", S.RUNNING, prompt=3900, made=100), row("new", prompt=2900, arrival_s=2.0)
    scheduler = Mlfq()
    scheduler.decide(look([low], now_s=3.0))
    scheduler._jobs["low"].level = 12
    plan = scheduler.decide(look([low, new], now_s=3.0, kv=6000, host=3000))
    assert (pauses(plan), starts(plan)) == ([], [])
    assert starts(scheduler.decide(look([low, new], now_s=3.0, kv=9000, host=9000))) == ["new"]
    full = look([low, new], now_s=3.0, kv=9000, host=9000)
    full = replace(full, view=replace(full.view, engine=replace(full.view.engine, host_free_tokens=800)))
    assert starts(scheduler.decide(full)) == []


def test_reasoning_goes_before_answering():
    scheduler = Pascal()
    answering = row("answers", S.RUNNING, made=30, arrival_s=0.0)
    reasoning = row("reasons", S.RUNNING, made=30, arrival_s=1.0, is_started=False)
    scheduler.decide(look([answering, reasoning], slots=2))
    plan = scheduler.decide(look([answering, reasoning, row("new", arrival_s=2.0)], slots=2))
    assert (pauses(plan), starts(plan)) == ([("answers", Action.PAUSE_KEEP)], ["new"])


def test_reasoning_too_long_ranks_with_the_answers():
    scheduler = Pascal()
    deep = row("deep", S.RUNNING, prompt=100, made=MOST_REASONING_KV_TOKENS, is_started=False, arrival_s=1.0)
    scheduler.decide(look([deep], slots=1))
    assert starts(scheduler.decide(look([deep, row("new", arrival_s=2.0)], slots=1))) == ["new"]


def test_a_quantum_of_tokens_gives_the_place_to_the_next():
    scheduler = Pascal()
    first, second = row("a", made=0, arrival_s=0.0), row("b", made=0, arrival_s=1.0)
    assert starts(scheduler.decide(look([first, second], slots=1))) == ["a"]
    running = row("a", S.RUNNING, made=QUANTUM_TOKENS - 1, is_started=False)
    plan = scheduler.decide(look([running, second], slots=1))
    assert pauses(plan) == []
    assert scheduler.ask_again_s(look([running, second], slots=1), plan) == pytest.approx(10.0 + 0.02)
    running = row("a", S.RUNNING, made=QUANTUM_TOKENS, is_started=False)
    plan = scheduler.decide(look([running, second], slots=1))
    assert (pauses(plan), starts(plan)) == ([("a", Action.PAUSE_KEEP)], ["b"])


@st.composite
def workloads(draw):
    """Requests that each fit into a pool of 2,000 tokens; together they may not. Some clients leave early."""
    count = draw(st.integers(1, 14))
    at_s = sorted(draw(st.lists(st.floats(0, 3), min_size=count, max_size=count)))
    return [
        SimRequest(
            arrival_s,
            draw(st.integers(1, 900)),
            draw(st.integers(2, 300)),
            draw(st.sampled_from([None, 5.0, 20.0])),
            hidden_tokens=draw(st.sampled_from([0, 1])),
            leaves_s=draw(st.sampled_from([None, None, 0.01, 1.0])),
        )
        for arrival_s in at_s
    ]


@pytest.mark.parametrize("name", BASELINES)
@settings(deadline=None, max_examples=30)
@given(
    requests=workloads(), slots=st.integers(1, 6), page=st.sampled_from([1, 16]), host=st.sampled_from([0, 500, 9000])
)
def test_every_baseline_finishes_every_workload_and_does_so_again(name, requests, slots, page, host):
    """The engine itself checks at the end that every token was made and that no page is lost."""
    size = EngineSettings(slot_count=slots, kv_tokens=2000, host_tokens=host, page_tokens=page)
    ends = []
    for _ in range(2):
        engine = SimEngine(make_baseline(name), GPU, size)
        engine.run(requests)
        assert len(engine.clerk.records) == len(requests)
        assert all(record.is_aborted or record.made_tokens == record.asked_tokens for record in engine.clerk.records)
        ends.append((engine.state.now_s, [record.rid for record in engine.clerk.records]))
    assert ends[0] == ends[1]
