"""Baselines that never trade one stream for another: the orders and reserves of SGLang, vLLM, Sarathi and DistServe."""

from importlib import import_module

import numpy as np
import pytest
from sim_looks import GPU, S, look, pauses, row, starts

from tokenflow.errors import UsageError
from tokenflow.policy.plan import Action
from tokenflow.sim.baselines import BASELINES, make_baseline
from tokenflow.sim.baselines.chunked import Chunked
from tokenflow.sim.baselines.draft import Draft
from tokenflow.sim.baselines.fcfs import VLLM_RULES, Fcfs
from tokenflow.sim.baselines.sglang_priority import SglangPriority
from tokenflow.sim.baselines.sglang_reserve import FIRST_RATIO, LEAST_RATIO, SglangReserve
from tokenflow.sim.engine import SimEngine
from tokenflow.sim.scheduler import StepStyle
from tokenflow.sim.settings import EngineSettings
from tokenflow.sim.workload import SimRequest


class Watched:
    """A scheduler that is asked before every step, and notes when the first request made its tokens."""

    def __init__(self, scheduler):
        self.name, self.rules, self._scheduler = scheduler.name, scheduler.rules, scheduler
        self.times_s = {}

    def decide(self, seen):
        if seen.view.rids[0] == "r000001":
            self.times_s.setdefault(int(seen.made_tokens[0]), seen.now_s)
        return self._scheduler.decide(seen)

    def ask_again_s(self, seen, plan):
        return seen.now_s


def longest_gap_s(scheduler, requests) -> float:
    """The longest time between two tokens of the first request."""
    watched = Watched(scheduler)
    SimEngine(watched, GPU, EngineSettings(slot_count=4, kv_tokens=10_000)).run(requests)
    del watched.times_s[0]
    return float(np.diff(list(watched.times_s.values())).max())


def test_the_oldest_go_first_and_the_first_that_does_not_fit_holds_up_the_rest():
    rows = [row("new", arrival_s=3.0), row("big", prompt=9000, arrival_s=2.0), row("old", arrival_s=1.0)]
    seen = look(rows, kv=5000)
    assert starts(Fcfs(VLLM_RULES).decide(seen)) == ["old"]
    assert [seen.view.rids[one] for one in Fcfs(VLLM_RULES).decide(seen).blocked] == ["big"]


def test_whoever_was_taken_out_comes_back_in_its_old_place():
    rows = [row("waits", arrival_s=2.0), row("back", S.PREEMPTED, made=20, arrival_s=1.0, since_s=9.0)]
    plan = Fcfs(VLLM_RULES).decide(look(rows, slots=1))
    assert [(one.rid, one.action) for one in plan.starts] == [("back", Action.RESUME_RECOMPUTE)]


def test_vllm_lets_prompts_in_while_they_fit_and_sglang_keeps_room_for_their_output():
    rows = [row(f"r{i}", prompt=100, left=500, arrival_s=float(i)) for i in range(4)]
    assert starts(Fcfs(VLLM_RULES).decide(look(rows, kv=1000))) == ["r0", "r1", "r2", "r3"]
    # 101 + 500 of its own, and then 601 + 601 > 1000.
    assert starts(Fcfs().decide(look(rows, kv=1000))) == ["r0"]


def test_vllm_admits_nobody_while_those_who_run_cannot_grow():
    rows = [row("a", S.RUNNING, prompt=500, made=1), row("b", S.RUNNING, prompt=499, made=1), row("new", prompt=1)]
    assert starts(Fcfs(VLLM_RULES).decide(look(rows, kv=1000))) == []


def test_sglang_reserves_less_as_time_goes_by_without_a_retraction():
    reserve = SglangReserve()
    running = [row("a", S.RUNNING, made=50, left=1000)]
    ratios = []
    for now_s in (0.0, 2.0, 100.0):
        draft = Draft(look(running, now_s=now_s).view)
        reserve.retract(draft, np.array([50]))
        ratios.append(reserve.ratio)
    assert ratios == pytest.approx([FIRST_RATIO, FIRST_RATIO - 100 * (FIRST_RATIO - LEAST_RATIO) / 600, LEAST_RATIO])
    assert reserve.running_tokens(draft) == pytest.approx(1000 * LEAST_RATIO)


def test_sglang_retracts_whoever_has_made_least_and_reserves_more_afterwards():
    rows = [
        row("far", S.RUNNING, prompt=400, made=101, left=100),
        row("long", S.RUNNING, prompt=395, made=6, left=195),
        row("short", S.RUNNING, prompt=95, made=6, left=195),
    ]
    scheduler = Fcfs()
    plan = scheduler.decide(look(rows, kv=1000))
    assert pauses(plan) == [("long", Action.PAUSE_DROP)]
    assert starts(plan) == []
    left_ratio = (101 + 6 + 2 * 20) / (201 + 201 + 1)
    assert scheduler._reserve.ratio == pytest.approx(left_ratio)


def test_a_long_prompt_stops_decoding_under_fcfs_and_not_under_chunked():
    requests = [SimRequest(0.0, 10, 60, None), SimRequest(0.2, 6000, 5, None)]
    whole_s, chunk_s = GPU.new_token_s * 6000, GPU.new_token_s * 512
    assert longest_gap_s(Fcfs(), requests) > whole_s
    assert chunk_s < longest_gap_s(Chunked(512), requests) < chunk_s + 0.02
    assert Chunked().rules.style is StepStyle.MIXED


def test_priorities_follow_the_reading_rate_and_preempt_by_slots_alone():
    running = [
        row("slow-late", S.RUNNING, made=5, rate_tok_s=5.0, arrival_s=2.0, left=200),
        row("slow", S.RUNNING, made=5, rate_tok_s=5.0, arrival_s=1.0, left=200),
    ]
    fast = row("fast", rate_tok_s=20.0, arrival_s=3.0, left=100)
    plan = SglangPriority().decide(look([*running, fast], slots=2))
    assert pauses(plan) == [("slow-late", Action.PAUSE_DROP)]
    assert starts(plan) == ["fast"]
    # With a slot free and no memory it waits: SGLang asks for victims only when no slot is free.
    plan = SglangPriority().decide(look([*running, fast], slots=3, kv=330))
    assert (pauses(plan), starts(plan)) == ([], [])


def test_a_priority_within_the_threshold_does_not_preempt():
    rows = [row("runs", S.RUNNING, made=5, rate_tok_s=5.0), row("waits", rate_tok_s=5.5, arrival_s=1.0)]
    assert pauses(SglangPriority().decide(look(rows, slots=1))) == []
    rows[1] = row("waits", rate_tok_s=5.6, arrival_s=1.0)
    assert pauses(SglangPriority().decide(look(rows, slots=1))) == [("runs", Action.PAUSE_DROP)]


def test_of_equal_priority_whoever_was_preempted_queues_behind_who_waited_then():
    rows = [
        row("back", S.PREEMPTED, made=5, arrival_s=0.0, since_s=5.0, first_run=False),
        row("waits", arrival_s=2.0),
        row("first", rate_tok_s=30.0, arrival_s=4.0),
    ]
    assert starts(SglangPriority().decide(look(rows, slots=3))) == ["first", "waits", "back"]


def test_two_pools_admit_for_the_one_that_decodes():
    scheduler = make_baseline("disaggregated")
    assert scheduler.rules.has_prefill_pool
    assert starts(scheduler.decide(look([row("a"), row("b", arrival_s=1.0)], slots=1))) == ["a"]


def test_baselines_by_name():
    assert {"fcfs", "chunked", "sglang-priority", "andes", "mlfq", "pascal", "disaggregated"} == set(BASELINES)
    for name in BASELINES:
        assert make_baseline(name).name == name
        assert make_baseline(name) is not make_baseline(name)  # state of one run must not reach another
        source = import_module(type(make_baseline(name)).__module__).__doc__
        assert "arXiv" in source or "SGLang 0.5.23" in source
    with pytest.raises(UsageError, match="'edf'") as caught:
        make_baseline("edf")
    assert "mlfq" in caught.value.hint


@pytest.mark.parametrize("name", BASELINES)
def test_the_chunk_may_be_chosen(name):
    assert make_baseline(name, 640).rules.chunk_tokens == 640
    assert make_baseline(name).rules.chunk_tokens in (2048, 8192)
