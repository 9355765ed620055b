"""What every simulated run must keep: tokens, pages, order of time, sameness."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_rig import burst, by_rid, simulated, small_gpu

from tokenflow.errors import SimulationError
from tokenflow.policy.carry import Carry
from tokenflow.policy.plan import Plan
from tokenflow.policy.tunables import Restore, Tunables
from tokenflow.sim.policies import POLICIES, make_scheduler
from tokenflow.sim.scheduler import StepRules, StepStyle
from tokenflow.sim.settings import LoadOverlap
from tokenflow.sim.workload import SimRequest


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("page_tokens", [1, 16])
def test_every_policy_makes_every_token_in_too_little_memory(policy, page_tokens):
    requests = burst(30, prompt=150, output=300, gap_s=0.05)
    engine = simulated(requests, scheduler=make_scheduler(policy, Tunables()), slots=10, page_tokens=page_tokens)
    assert len(engine.clerk.records) == 30
    assert all(record.figures.token_count == 300 for record in engine.clerk.records)
    assert engine.state.memory.is_all_free


requests_of_any_kind = st.lists(
    st.builds(
        SimRequest,
        arrival_s=st.floats(0, 5),
        prompt_tokens=st.integers(1, 600),
        output_tokens=st.integers(21, 200),
        rate_tok_s=st.one_of(st.none(), st.floats(0.5, 200)),
        hidden_tokens=st.sampled_from([0, 0, 1, 20]),
        leaves_s=st.one_of(st.none(), st.floats(0, 10)),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(
    requests=requests_of_any_kind,
    policy=st.sampled_from(POLICIES),
    overlap=st.sampled_from(list(LoadOverlap)),
    page=st.sampled_from([1, 16]),
    host=st.sampled_from([0, 500, 100_000]),
)
def test_any_workload_ends_with_its_books_in_order(requests, policy, overlap, page, host):
    requests = sorted(requests, key=lambda one: one.arrival_s)
    engine = simulated(
        requests, scheduler=make_scheduler(policy, Tunables()), slots=4, kv=1024, host=host, page_tokens=page,
        load_overlap=overlap,
    )  # fmt: skip
    records = by_rid(engine)
    assert len(records) == len(requests)
    for index, request in enumerate(requests):
        record = records[f"r{index + 1:06d}"]
        assert record.is_aborted or record.made_tokens == request.output_tokens
        if record.is_aborted:
            assert request.leaves_s is not None
        visible = max(record.made_tokens - request.hidden_tokens, 0)
        assert record.figures.token_count == visible


def test_one_stream_alone_takes_what_the_formula_says():
    gpu = small_gpu()
    engine = simulated(burst(1, prompt=100, output=50), gpu=gpu)
    (record,) = engine.clerk.records
    prefill_s = 0.012 + 1e-4 + 100 * 1e-4 + 1e-9 * 100 * 101 / 2
    assert record.figures.ttft_s == pytest.approx(prefill_s)
    decode_s = sum(0.01 + 2e-4 + 1e-7 * (101 + step) for step in range(49))
    assert record.figures.end_s == pytest.approx(prefill_s + decode_s)


def test_a_leap_over_many_steps_is_the_same_as_step_by_step():
    """The scheduler that asks for every step stops the clock at each; the times must not change."""

    class Curious:
        name, rules = "curious", StepRules(StepStyle.MIXED, 2048)

        def __init__(self, asks_always):
            self.inner, self.asks_always = make_scheduler("fcfs", Tunables()), asks_always

        def decide(self, look):
            return self.inner.decide(look)

        def ask_again_s(self, look, plan):
            return look.now_s if self.asks_always else self.inner.ask_again_s(look, plan)

    runs = [simulated(burst(12, gap_s=0.3), scheduler=Curious(asks)) for asks in (True, False)]
    assert runs[0].decision_count > 3 * runs[1].decision_count
    for one, other in zip(*(engine.clerk.records for engine in runs), strict=True):
        assert one.rid == other.rid
        assert one.figures.end_s == pytest.approx(other.figures.end_s, rel=1e-12)


def test_the_same_requests_give_the_same_run():
    requests = burst(25, prompt=100, output=150, gap_s=0.02)
    one, other = (simulated(requests, slots=6) for _ in range(2))
    assert one.clerk.records == other.clerk.records
    assert one.clerk.series.samples == other.clerk.series.samples


def test_a_request_larger_than_the_pool_is_turned_away_and_the_others_are_served():
    engine = simulated([SimRequest(0.0, 5000, 10, 10.0), *burst(3)])
    assert engine.rejected_count == 1
    assert sorted(record.made_tokens for record in engine.clerk.records) == [0, 100, 100, 100]


def test_a_client_that_leaves_takes_nothing_more():
    engine = simulated([SimRequest(0.0, 50, 1000, 10.0, leaves_s=1.0), SimRequest(0.0, 50, 100, 10.0)])
    left = by_rid(engine)["r000001"]
    assert left.is_aborted
    assert 50 < left.made_tokens < 110
    assert by_rid(engine)["r000002"].made_tokens == 100


def test_hidden_tokens_are_made_and_not_read():
    engine = simulated([SimRequest(0.0, 50, 100, 10.0, hidden_tokens=40)])
    (record,) = engine.clerk.records
    assert (record.made_tokens, record.figures.token_count) == (100, 60)
    assert record.figures.ttft_s > 40 * 0.01


def test_host_memory_is_given_back_and_what_was_paused_comes_back_over_the_link():
    engine = simulated(burst(20, prompt=200, output=300, rate=20.0), slots=10, kv=3000)
    assert engine.state.counts.load_count > 0
    assert engine.state.memory.is_all_free
    assert sum(record.switch_bytes for record in engine.clerk.records) > 0


def test_without_host_memory_what_leaves_is_computed_again():
    engine = simulated(burst(20, prompt=200, output=300, rate=20.0), slots=10, kv=3000, host=0)
    assert engine.state.counts.recompute_count > 0
    assert engine.state.counts.recomputed_tokens > 0
    assert sum(record.switch_bytes for record in engine.clerk.records) == 0


def test_copies_that_slow_steps_down_make_the_run_longer():
    requests = burst(20, prompt=200, output=300, rate=20.0)
    link = small_gpu().link
    ends = []
    for ratio in (1.0, 2.0):
        slow = type(link)(link.d2h_bytes_s, link.h2d_bytes_s, link.fixed_s, 0.5, ratio)
        ends.append(simulated(requests, slots=10, kv=3000, link=slow).state.now_s)
    assert ends[1] > 1.05 * ends[0]


@pytest.mark.parametrize("overlap", list(LoadOverlap))
def test_no_way_of_loading_loses_a_token(overlap):
    engine = simulated(burst(20, prompt=200, output=200, rate=20.0), slots=10, kv=3000, load_overlap=overlap)
    assert all(record.made_tokens == 200 for record in engine.clerk.records)


def test_a_plan_that_starts_more_than_there_are_slots_ends_the_run():
    inner = make_scheduler("fcfs", Tunables())

    class Greedy:
        name, rules = "greedy", inner.rules

        def decide(self, look):
            wide = replace(look.view.engine, slots_free=99)
            return inner.decide(replace(look, view=replace(look.view, engine=wide)))

        def ask_again_s(self, look, plan):
            return inner.ask_again_s(look, plan)

    with pytest.raises(SimulationError, match="no slot is free"):
        simulated(burst(20), scheduler=Greedy(), slots=4)


def test_a_scheduler_that_never_starts_anybody_ends_the_run():
    class Idle:
        name, rules = "idle", StepRules()

        def decide(self, look):
            return Plan(Carry())

        def ask_again_s(self, look, plan):
            return float("inf")

    with pytest.raises(SimulationError, match="nobody runs"):
        simulated(burst(2), scheduler=Idle())


def test_a_copy_that_takes_minutes_is_waited_for():
    slow = replace(small_gpu().link, h2d_bytes_s=1e5)  # a token a second
    requests = [SimRequest(0.0, 200, 6, 10.0), SimRequest(0.05, 200, 6, 10.0)]
    engine = simulated(
        requests,
        scheduler=make_scheduler("mlfq", Tunables()),
        gpu=small_gpu(link=slow),
        slots=1,
        kv=256,
        load_overlap=LoadOverlap.AHEAD,
    )
    assert engine.state.counts.load_count > 0
    assert engine.state.now_s > 150.0
    assert [record.made_tokens for record in engine.clerk.records] == [6, 6]


def test_without_overlap_a_step_waits_for_its_copies():
    """Streams are swapped out and back, over a link on which a copy takes about as long as a step."""
    slow = replace(small_gpu().link, h2d_bytes_s=1e9)
    requests = burst(20, prompt=200, output=200, rate=20.0)
    ends_s = {}
    for overlap in LoadOverlap:
        tunables = {"restore": Restore.LOAD}
        ran = simulated(requests, gpu=small_gpu(link=slow), slots=10, kv=3000, load_overlap=overlap, tunables=tunables)
        ends_s[overlap] = ran.state.now_s
        assert ran.state.counts.load_count > 0
    assert ends_s[LoadOverlap.NONE] > ends_s[LoadOverlap.LAYERS]


def test_who_joins_the_decode_needs_no_step_of_its_own_to_come_back():
    """Its jobs go on decoding; under SGLang's rules each return is a prefill step in which nobody decodes."""
    requests = burst(6, prompt=20, output=300, rate=10.0)
    joins = make_scheduler("mlfq", Tunables())
    stays = make_scheduler("mlfq", Tunables())
    joins.rules = replace(joins.rules, joins_decode=True)
    assert not stays.rules.joins_decode
    assert make_scheduler("andes", Tunables()).rules.joins_decode
    own, sglang = (simulated(requests, scheduler=scheduler, slots=3) for scheduler in (joins, stays))
    assert own.state.counts.pause_count > 20
    assert own.state.now_s < sglang.state.now_s
    assert sorted(record.made_tokens for record in own.clerk.records) == [300] * 6


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_works_with_the_chunks_that_were_asked_for(policy):
    scheduler = make_scheduler(policy, Tunables(), chunk_tokens=640)
    assert scheduler.rules.chunk_tokens == 640
    assert simulated(burst(3), scheduler=scheduler).state.rules.chunk_tokens == 640


def test_nobody_is_paused_right_behind_a_mixed_step():
    """SGLang has those who decoded in it in a batch that is merged behind the plugin's turn."""
    looks = []

    def heard(now_s, look, plan):
        looks.append((bool(look.view.may_pause.all()), len(plan.pauses), len(plan.starts)))

    scheduler = make_scheduler("tokenflow", Tunables(), has_mixed_steps=True, chunk_tokens=64)
    requests = burst(12, prompt=100, output=200, rate=10.0, gap_s=0.3)
    engine = simulated(requests, scheduler=scheduler, slots=4, on_plan=heard)
    behind_mixed = [pauses for may_pause, pauses, _ in looks if not may_pause]
    assert behind_mixed
    assert sum(behind_mixed) == 0
    assert engine.state.counts.pause_count > 5
    assert sorted(record.made_tokens for record in engine.clerk.records) == [200] * 12


def test_a_pool_that_is_full_behind_a_mixed_step_is_relieved_by_the_policy():
    scheduler = make_scheduler("tokenflow", Tunables(), has_mixed_steps=True, chunk_tokens=64)
    engine = simulated(burst(8, prompt=100, output=200, rate=10.0, gap_s=0.3), scheduler=scheduler, slots=8, kv=700)
    assert engine.state.counts.pause_count > 0
    assert engine.state.counts.forced_count == 0
    assert sorted(record.made_tokens for record in engine.clerk.records) == [200] * 8


def test_times_of_long_runs_are_let_go():
    """More decode steps than the shared row of times keeps: whoever runs has its own copy."""
    from tokenflow.sim import engine as module

    before = module.FLUSH_COUNT
    module.FLUSH_COUNT = 50
    try:
        flushed = simulated(burst(6, output=400, gap_s=0.5))
    finally:
        module.FLUSH_COUNT = before
    kept = simulated(burst(6, output=400, gap_s=0.5))
    assert flushed.clerk.records == kept.clerk.records
    assert flushed.state.decode_times.count <= 400 + 50


def test_the_series_is_thinned_out_and_stays_in_order():
    engine = simulated(burst(4, output=3000, rate=5.0, gap_s=25.0), kv=16_000)
    times = [sample.time_s for sample in engine.clerk.series.samples]
    assert 100 < len(times) <= 600
    assert np.all(np.diff(times) > 0)
    assert times[-1] > 0.9 * engine.state.now_s


def test_a_prefill_pool_computes_prompts_beside_decoding_and_hands_them_over():
    gpu = small_gpu()
    requests = [SimRequest(0.0, 100, 500, 10.0), SimRequest(1.0, 1000, 50, 10.0)]
    beside = simulated(requests, scheduler=make_scheduler("disaggregated", Tunables()), gpu=gpu)
    records = by_rid(beside)
    new = records["r000002"].figures
    prefill_s = 0.012 + 1e-4 + 1000 * 1e-4 + 1e-9 * 1000 * 1001 / 2
    assert prefill_s <= new.ttft_s <= prefill_s + 0.011  # a step of the decoding pool at most until it is heard of
    handed_over_s = 1e-4 + 1000 * gpu.kv_bytes_per_token / gpu.link.h2d_bytes_s
    assert new.end_s - new.arrival_s - new.ttft_s >= handed_over_s + 49 * 0.01
    alone = simulated(requests[:1], scheduler=make_scheduler("disaggregated", Tunables()), gpu=gpu)
    other_s = by_rid(alone)["r000001"].figures.end_s
    assert records["r000001"].figures.end_s < other_s + 0.5 * prefill_s  # not held up by the other's prompt


@pytest.mark.parametrize("policy", ["tokenflow", "fcfs"])
def test_hours_without_a_request_are_skipped(policy):
    requests = [SimRequest(0.0, 50, 20, 10.0), SimRequest(7200.0, 50, 20, 10.0)]
    engine = simulated(requests, scheduler=make_scheduler(policy, Tunables()))
    assert [record.made_tokens for record in engine.clerk.records] == [20, 20]
    assert by_rid(engine)["r000002"].figures.ttft_s < 0.1
    assert engine.decision_count < 100
