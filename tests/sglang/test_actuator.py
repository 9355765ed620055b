"""What the actuator does to SGLang's queue and batch, on small stand-ins; with the real engine: tests/engine."""

from collections import deque
from types import SimpleNamespace

import pytest
from sglang_fakes import FINISH_LENGTH, FakeReq, put_schedule_policy, scheduler_with

from tokenflow.policy.states import Mode
from tokenflow.sglang.actuator import Actuator
from tokenflow.sglang.directive import Directive, WriteUpTo


@pytest.fixture(autouse=True)
def schedule_policy(monkeypatch):
    """The one module of SGLang whose constant is lowered while admitting."""
    return put_schedule_policy(monkeypatch)


def directive(**orders) -> Directive:
    return Directive(1, Mode.ENFORCE, **orders)


def admit(actuator: Actuator, scheduler, admission):
    """As the hook does."""
    actuator.narrow(scheduler.running_batch)
    try:
        return admission(scheduler)
    finally:
        actuator.widen()


def test_a_victim_leaves_the_batch_keeps_its_place_in_the_books_and_waits_in_the_queue():
    first, second = FakeReq("a"), FakeReq("b")
    first.make(3)
    scheduler = scheduler_with([], [first, second])
    actuator = Actuator(scheduler)
    actuator.carry_out(directive(pauses=("a",)))
    assert scheduler.running_batch.reqs == [second]
    assert scheduler.running_batch.batch_is_full is False
    assert scheduler.waiting_queue == [first]
    assert actuator.paused == [first]
    assert actuator.pause_count == 1
    assert scheduler.tree_cache.flush_count == 1


def test_one_that_was_released_is_in_the_queue_whatever_fails_after_it():
    first, second = FakeReq("a"), FakeReq("b")
    scheduler = scheduler_with([], [first, second])
    batch, release = scheduler.running_batch, scheduler.running_batch.release_req

    def break_at_the_second(index, remaining):
        if batch.reqs[index] is second:
            raise RuntimeError("planted")
        return release(index, remaining)

    batch.release_req = break_at_the_second
    with pytest.raises(RuntimeError, match="planted"):
        Actuator(scheduler).carry_out(directive(pauses=("a", "b")))
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
    Actuator(scheduler).carry_out(directive(pauses=("a",)))
    assert scheduler.running_batch.reqs == [req]
    assert scheduler.waiting_queue == []


def test_the_step_in_flight_is_processed_before_anybody_is_paused():
    req = FakeReq("a")
    scheduler = scheduler_with([], [req])
    order = []
    scheduler.result_queue = deque([("batch", "result")])
    scheduler.last_batch = object()
    scheduler.process_batch_result = lambda batch, result: order.append(len(scheduler.running_batch.reqs))
    Actuator(scheduler).carry_out(directive(pauses=("a",)))
    assert order == [1]
    assert scheduler.last_batch is None
    assert not scheduler.result_queue


def test_admission_sees_only_the_starts_in_their_order_and_the_others_keep_theirs():
    reqs = [FakeReq(name) for name in "abcd"]
    reqs[2].make(3)
    scheduler = scheduler_with(reqs)
    actuator = Actuator(scheduler)
    actuator.carry_out(directive(starts=("c", "a"), held_back=("b", "d")))
    seen = []

    def admission(scheduler):
        seen.extend(req.rid for req in scheduler.waiting_queue)
        scheduler.waiting_queue = scheduler.waiting_queue[1:]  # the first was admitted, the second found no room
        return "batch"

    assert admit(actuator, scheduler, admission) == "batch"
    assert seen == ["c", "a"]
    assert [req.rid for req in scheduler.waiting_queue] == ["a", "b", "d"]
    assert actuator.resumed == [reqs[2]]


def test_a_request_that_the_directive_does_not_know_is_admitted_as_ever():
    known, unknown = FakeReq("a"), FakeReq("HEALTH_CHECK_1")
    scheduler = scheduler_with([known, unknown])
    actuator = Actuator(scheduler)
    actuator.carry_out(directive(held_back=("a",)))
    seen = []
    admit(actuator, scheduler, lambda scheduler: seen.extend(req.rid for req in scheduler.waiting_queue))
    assert seen == ["HEALTH_CHECK_1"]


def test_nobody_is_lost_from_the_queue_when_admission_raises(schedule_policy):
    scheduler = scheduler_with([FakeReq(name) for name in "abc"])
    actuator = Actuator(scheduler)
    actuator.carry_out(directive(starts=("b",), held_back=("a", "c"), recomputes=("b",)))

    def broken(scheduler):
        assert schedule_policy.CLIP_MAX_NEW_TOKENS == 8
        assert actuator.is_recomputed("b")
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        admit(actuator, scheduler, broken)
    assert sorted(req.rid for req in scheduler.waiting_queue) == ["a", "b", "c"]
    assert schedule_policy.CLIP_MAX_NEW_TOKENS == 4096
    assert not actuator.is_recomputed("b")


@pytest.mark.parametrize("end", ["a turn later", "stopped"])
def test_without_a_directive_of_this_turn_admission_is_stock(end):
    scheduler = scheduler_with([FakeReq(name) for name in "ab"])
    actuator = Actuator(scheduler)
    actuator.carry_out(directive(starts=("b",), held_back=("a",)))
    if end == "stopped":
        actuator.carry_out(Directive(2, Mode.OBSERVE))
        assert not actuator.is_enforcing
    else:
        actuator.forget()
    seen = []
    admit(actuator, scheduler, lambda scheduler: seen.extend(req.rid for req in scheduler.waiting_queue))
    assert seen == ["a", "b"]


def test_writes_move_whole_pages_of_running_streams_into_the_tree_up_to_a_position_whatever_was_written():
    req = FakeReq("a")
    req.kv = SimpleNamespace(kv_committed_len=50, holds_kv=True, cache_protected_len=10)
    scheduler = scheduler_with([], [req])
    scheduler.page_size = 16
    actuator = Actuator(scheduler)
    for _ in range(2):
        actuator.carry_out(directive(writes=(WriteUpTo("a", 40),)))
    assert scheduler.tree_cache.checkpoints == [("a", 32)]


def test_with_kv_full_the_one_that_the_directive_names_last_goes_first():
    reqs = [FakeReq(name) for name in "abcd"]
    actuator = Actuator(scheduler_with([], reqs))
    actuator.carry_out(directive(retraction_order=("c", "a", "b")))
    order = actuator.retraction_order([0, 1, 2, 3], reqs)
    assert [reqs[index].rid for index in order] == ["d", "c", "a", "b"]


class WritingTree:
    """One whose copies to the host are acknowledged when somebody waits for them."""

    cache_controller = object()

    def __init__(self):
        self.ongoing_write_through = {7: None}
        self.waits = []

    def writing_check(self, write_back=False):
        self.waits.append(write_back)
        self.ongoing_write_through.clear()


def test_copies_of_whom_sglang_takes_out_are_waited_for_and_those_of_our_own_pauses_not():
    first = FakeReq("a")
    scheduler = scheduler_with([], [first])
    tree = scheduler.tree_cache = WritingTree()
    actuator = Actuator(scheduler)
    release = scheduler.running_batch.release_req

    def released(index, remaining):
        release(index, remaining)
        actuator.make_room()  # as the hook does
        return True

    scheduler.running_batch.release_req = released
    actuator._pause(("a",))
    assert tree.waits == []
    actuator.make_room()
    actuator.make_room()
    assert tree.waits == [True]


def test_what_is_taken_out_for_new_weights_keeps_no_kv():
    scheduler = scheduler_with()
    actuator = Actuator(scheduler)
    assert actuator.keeps_kv(FakeReq("a"))
    scheduler._engine_paused = True
    assert not actuator.keeps_kv(FakeReq("a"))
