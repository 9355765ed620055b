"""What the actuator does to SGLang's queue and batch, on small stand-ins; with the real engine: tests/engine."""

import sys
from collections import deque
from types import ModuleType, SimpleNamespace

import pytest
from sglang_fakes import FINISH_LENGTH, FakeReq, scheduler_with

from tokenflow.policy.carry import Carry
from tokenflow.policy.plan import Action, Cause, Decision, Plan, Write
from tokenflow.policy.states import Reason, RequestState
from tokenflow.sglang.actuator import Actuator
from tokenflow.sglang.tracker import RequestTracker


@pytest.fixture(autouse=True)
def schedule_policy(monkeypatch):
    """The one module of SGLang whose constant is lowered while admitting."""
    module = ModuleType("sglang.srt.managers.schedule_policy")
    module.CLIP_MAX_NEW_TOKENS = 4096
    managers = ModuleType("sglang.srt.managers")
    managers.schedule_policy = module
    for name, made in (
        ("sglang", ModuleType("sglang")),
        ("sglang.srt", ModuleType("sglang.srt")),
        ("sglang.srt.managers", managers),
        ("sglang.srt.managers.schedule_policy", module),
    ):
        monkeypatch.setitem(sys.modules, name, made)
    return module


def tracked(*reqs: FakeReq) -> RequestTracker:
    tracker = RequestTracker()
    for req in reqs:
        tracker.see(req, 1.0)
    return tracker


def pause(rid: str) -> Decision:
    return Decision(rid, 0, Action.PAUSE_KEEP, Reason.PREEMPTED_SURPLUS, Cause.FIRST_TOKEN)


def start(rid: str) -> Decision:
    return Decision(rid, 0, Action.ADMIT, Reason.ADMITTED, Cause.FREE_PLACE)


def test_a_victim_leaves_the_batch_keeps_its_place_in_the_books_and_waits_in_the_queue():
    first, second = FakeReq("a"), FakeReq("b")
    first.make(3)
    scheduler, tracker = scheduler_with([], [first, second]), tracked(first, second)
    actuator = Actuator(scheduler, tracker)
    actuator.carry_out(Plan(Carry(), pauses=(pause("a"),)))
    assert scheduler.running_batch.reqs == [second]
    assert scheduler.running_batch.batch_is_full is False
    assert scheduler.waiting_queue == [first]
    stream = tracker.requests["a"].stream
    assert (stream.state, stream.reason) == (RequestState.PREEMPTED, Reason.PREEMPTED_SURPLUS)
    assert actuator.pause_count == 1
    assert scheduler.tree_cache.flush_count == 1


def test_one_that_was_released_is_in_the_queue_whatever_fails_after_it():
    first, second = FakeReq("a"), FakeReq("b")
    scheduler, tracker = scheduler_with([], [first, second]), tracked(first, second)
    batch, release = scheduler.running_batch, scheduler.running_batch.release_req

    def break_at_the_second(index, remaining):
        if batch.reqs[index] is second:
            raise RuntimeError("planted")
        return release(index, remaining)

    batch.release_req = break_at_the_second
    with pytest.raises(RuntimeError, match="planted"):
        Actuator(scheduler, tracker).carry_out(Plan(Carry(), pauses=(pause("a"), pause("b"))))
    assert batch.reqs == [second]
    assert scheduler.waiting_queue == [first]


@pytest.mark.parametrize("ended", ["finished", "released"])
def test_one_that_has_just_ended_or_is_released_already_is_no_victim(ended):
    req = FakeReq("a")
    if ended == "finished":
        req.finished_reason = FINISH_LENGTH()
    else:
        req.kv.holds_kv = False
    scheduler = scheduler_with([], [req])
    Actuator(scheduler, tracked(req)).carry_out(Plan(Carry(), pauses=(pause("a"),)))
    assert scheduler.running_batch.reqs == [req]
    assert scheduler.waiting_queue == []


def test_the_step_in_flight_is_processed_before_anybody_is_paused():
    req = FakeReq("a")
    scheduler = scheduler_with([], [req])
    order = []
    scheduler.result_queue = deque([("batch", "result")])
    scheduler.last_batch = object()
    scheduler.process_batch_result = lambda batch, result: order.append(len(scheduler.running_batch.reqs))
    Actuator(scheduler, tracked(req)).carry_out(Plan(Carry(), pauses=(pause("a"),)))
    assert order == [1]
    assert scheduler.last_batch is None
    assert not scheduler.result_queue


def test_admission_sees_only_the_starts_in_their_order_and_the_others_keep_theirs():
    reqs = [FakeReq(name) for name in "abcd"]
    scheduler = scheduler_with(reqs)
    actuator = Actuator(scheduler, tracked(*reqs))
    actuator.carry_out(Plan(Carry(), starts=(start("c"), start("a"))))
    seen = []

    def admission(self, prefill_delayer_single_pass, running_batch):
        seen.extend(req.rid for req in self.waiting_queue)
        self.waiting_queue = self.waiting_queue[1:]  # the first was admitted, the second found no room
        return "batch", running_batch

    result = actuator.admit(admission, scheduler.running_batch, prefill_delayer_single_pass=None)
    assert result == ("batch", scheduler.running_batch)
    assert seen == ["c", "a"]
    assert [req.rid for req in scheduler.waiting_queue] == ["a", "b", "d"]


def test_a_request_that_nobody_tracks_is_admitted_as_ever():
    known, unknown = FakeReq("a"), FakeReq("HEALTH_CHECK_1")
    scheduler = scheduler_with([known, unknown])
    actuator = Actuator(scheduler, tracked(known))
    actuator.carry_out(Plan(Carry()))
    seen = []
    actuator.admit(
        lambda self, running_batch: seen.extend(req.rid for req in self.waiting_queue), scheduler.running_batch
    )
    assert seen == ["HEALTH_CHECK_1"]


def test_nobody_is_lost_from_the_queue_when_admission_raises(schedule_policy):
    reqs = [FakeReq(name) for name in "abc"]
    scheduler = scheduler_with(reqs)
    actuator = Actuator(scheduler, tracked(*reqs))
    actuator.carry_out(Plan(Carry(), starts=(start("b"),)))

    def broken(self, running_batch):
        assert schedule_policy.CLIP_MAX_NEW_TOKENS == 8
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        actuator.admit(broken, scheduler.running_batch)
    assert sorted(req.rid for req in scheduler.waiting_queue) == ["a", "b", "c"]
    assert schedule_policy.CLIP_MAX_NEW_TOKENS == 4096


def test_without_a_plan_admission_is_stock():
    reqs = [FakeReq(name) for name in "ab"]
    scheduler = scheduler_with(reqs)
    actuator = Actuator(scheduler, tracked(*reqs))
    actuator.carry_out(Plan(Carry(), starts=(start("b"),)))
    actuator.forget()
    seen = []
    actuator.admit(
        lambda self, running_batch: seen.extend(req.rid for req in self.waiting_queue), scheduler.running_batch
    )
    assert seen == ["a", "b"]


def test_writes_move_whole_pages_of_running_streams_into_the_tree():
    req = FakeReq("a")
    req.kv = SimpleNamespace(kv_committed_len=50, holds_kv=True, cache_protected_len=10)
    scheduler = scheduler_with([], [req])
    scheduler.page_size = 16
    Actuator(scheduler, tracked(req)).carry_out(Plan(Carry(), writes=(Write("a", 0, 30),)))
    assert scheduler.tree_cache.checkpoints == [("a", 32)]
    assert scheduler.tree_cache.flush_count == 1
