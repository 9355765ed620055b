"""Faults in the hooks: SGLang's own call is made once, with the queue whole, whatever breaks in ours."""

from types import SimpleNamespace

import pytest
from sglang_fakes import FakeReq, put_schedule_policy, scheduler_with

from tokenflow.policy.states import Mode
from tokenflow.sglang import timeouts
from tokenflow.sglang.actuator import Actuator
from tokenflow.sglang.attach import Rank
from tokenflow.sglang.directive import Directive
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.rank_exchange import RankExchange
from tokenflow.sglang.scheduler_hooks import SchedulerHooks
from tokenflow.sglang.settings import PluginSettings


class FakeGovernor:
    """Decides what it is told to."""

    def __init__(self) -> None:
        self.next: Directive | None = None
        self.noted: list[str] = []
        self.blockers: list[str] = []
        self.held: set[str] = set()

    def is_held(self, rid):
        return rid in self.held

    def decide(self, now_s):
        if isinstance(self.next, Exception):
            raise self.next
        return self.next

    def note(self, paused, now_s):
        self.noted += [req.rid for req in paused]

    def note_resumed(self, now_s):
        pass

    def note_released(self):
        pass

    def end_turn(self):
        pass

    def stop_enforcing(self, blocker):
        self.blockers.append(blocker)


class FakeObserver:
    def __init__(self) -> None:
        self.governor = FakeGovernor()
        self.spent_s = 0.0
        self.disabled_count = 0

    def on_loop(self):
        pass

    def on_step(self, batch):
        raise RuntimeError("planted")

    def on_loop_disabled(self):
        self.disabled_count += 1


def break_down(*args, **kwargs):
    raise RuntimeError("planted")


class Stage:
    """One rank with its hooks. `waiting` are three requests, `running` two."""

    def __init__(self, tmp_path) -> None:
        self.waiting = [FakeReq(name) for name in "abc"]
        self.running = [FakeReq(name) for name in "xy"]
        self.scheduler = scheduler_with(self.waiting, self.running)
        self.actuator = Actuator(self.scheduler)
        self.observer = FakeObserver()
        self.hooks = SchedulerHooks(tmp_path, PluginSettings())
        self.hooks._rank = Rank(self.scheduler, self.actuator, RankExchange(0, 1), self.observer)
        self.calls: list[list[str]] = []
        self.admits = 0

    def turn(self, **orders) -> None:
        self.observer.governor.next = Directive(1, Mode.ENFORCE, **orders)
        self.hooks.before_next_batch(self.scheduler)

    def admission(self, scheduler, prefill_delayer_single_pass, running_batch):
        self.calls.append([req.rid for req in scheduler.waiting_queue])
        scheduler.waiting_queue = scheduler.waiting_queue[self.admits :]
        return None, running_batch

    def admit(self):
        return self.hooks.around_admission(
            self.admission, self.scheduler, None, running_batch=self.scheduler.running_batch
        )

    @property
    def queue(self) -> list[str]:
        return sorted(req.rid for req in self.scheduler.waiting_queue)


@pytest.fixture
def stage(tmp_path, monkeypatch):
    put_schedule_policy(monkeypatch)
    return Stage(tmp_path)


def test_what_the_directive_starts_is_what_admission_sees(stage):
    stage.turn(starts=("c",), held_back=("a", "b"))
    assert stage.admit() == (None, stage.scheduler.running_batch)
    assert stage.calls == [["c"]]
    assert stage.queue == ["a", "b", "c"]
    assert stage.hooks.guard.fault_count == 0


@pytest.mark.parametrize("broken", ["narrow", "widen"])
def test_admission_goes_on_as_stock_when_ours_breaks(stage, broken, monkeypatch):
    stage.turn(starts=("c",), held_back=("a", "b"))
    if broken == "narrow":
        monkeypatch.setattr(stage.actuator, "narrow", break_down)
    else:
        del stage.waiting[2].output_ids  # the books about who resumed fail
        stage.admits = 1
    assert stage.admit() == (None, stage.scheduler.running_batch)
    assert stage.calls == [["a", "b", "c"] if broken == "narrow" else ["c"]]
    assert stage.queue == (["a", "b", "c"] if broken == "narrow" else ["a", "b"])
    assert stage.hooks.guard.fault_count == 1


def test_those_whom_a_broken_admission_left_aside_are_back_at_the_next_turn(stage, monkeypatch):
    stage.turn(starts=("c",), held_back=("a", "b"))
    with monkeypatch.context() as patch:
        patch.setattr(stage.actuator, "widen", break_down)
        assert stage.admit() == (None, stage.scheduler.running_batch)
    assert stage.queue == ["c"]
    stage.turn()
    assert stage.queue == ["a", "b", "c"]
    assert stage.hooks.guard.fault_count == 1


def test_a_fault_in_deciding_leaves_the_turn_to_stock(stage):
    stage.observer.governor.next = RuntimeError("planted")
    stage.hooks.before_next_batch(stage.scheduler)
    assert stage.admit() == (None, stage.scheduler.running_batch)
    assert stage.calls == [["a", "b", "c"]]
    assert stage.hooks.guard.fault_count == 1


def test_a_fault_half_way_through_a_pause_loses_nobody(stage):
    batch, release = stage.scheduler.running_batch, stage.scheduler.running_batch.release_req

    def break_at_the_second(index, remaining):
        if index == 1:
            raise RuntimeError("planted")
        return release(index, remaining)

    batch.release_req = break_at_the_second
    stage.turn(pauses=("x", "y"), starts=("a",), held_back=("b", "c"))
    assert stage.queue == ["a", "b", "c", "x"]
    assert [req.rid for req in batch.reqs] == ["y"]
    assert stage.observer.governor.noted == ["x"]
    assert stage.hooks.guard.fault_count == 1
    stage.admit()
    assert stage.calls == [["a", "b", "c", "x"]]  # the directive broke off: this turn's admission is stock


@pytest.mark.parametrize("broken", ["keeps_kv", "keep"])
def test_a_row_is_released_once_when_ours_breaks(stage, broken, monkeypatch):
    stage.turn()
    monkeypatch.setattr(stage.actuator if broken == "keeps_kv" else stage.actuator.kept, broken, break_down)
    released = []
    outcome = stage.hooks.around_release(
        lambda req, tree, checkpoint: released.append((req.rid, checkpoint)),
        stage.running[0],
        stage.scheduler.tree_cache,
        checkpoint=False,
    )
    assert outcome is None
    assert released == [("x", broken == "keep")]
    assert stage.hooks.guard.fault_count == 1


def test_the_retraction_order_is_stock_when_ours_breaks(stage, monkeypatch):
    stage.turn(retraction_order=("x", "y"))
    monkeypatch.setattr(stage.actuator, "retraction_order", break_down)
    assert stage.hooks.around_retraction_order(lambda reqs: [1, 0], stage.running) == [1, 0]
    assert stage.hooks.guard.fault_count == 1


def test_a_host_copy_is_loaded_unless_the_directive_says_recompute(stage, monkeypatch):
    stage.turn(starts=("a", "b"), recomputes=("b",), held_back=("c",))
    seen = []

    def load(req):
        params = SimpleNamespace(req=req)
        req.last_node = 7
        return stage.hooks.around_load_back(lambda tree, params: (40, 9), None, params)

    def admission(scheduler, prefill_delayer_single_pass, running_batch):
        seen.extend(load(req) for req in scheduler.waiting_queue)
        return None, running_batch

    stage.admission = admission
    stage.admit()
    assert seen == [(40, 9), (0, 7)]
    monkeypatch.setattr(stage.actuator, "is_recomputed", break_down)
    assert load(stage.waiting[1]) == (40, 9)


def test_after_too_many_faults_stock_scheduling_stays(stage):
    stage.turn()
    assert stage.actuator.is_enforcing
    for _ in range(30):
        stage.hooks.after_step(None, stage.scheduler, None, None)
    assert stage.hooks.guard.is_tripped
    assert stage.hooks.guard.fault_count == FaultGuard()._max_faults
    stage.turn(pauses=("x",), starts=("c",), held_back=("a", "b"))
    assert not stage.actuator.is_enforcing
    assert stage.observer.disabled_count == 1
    stage.admit()
    assert stage.calls == [["a", "b", "c"]]
    assert stage.queue == ["a", "b", "c"]


def test_the_queue_limit_is_not_for_streams_that_were_taken_out(stage):
    stage.turn()
    stage.waiting[0].make(3)
    limit = lambda scheduler, req: True  # noqa: E731
    assert stage.hooks.around_queue_limit(limit, stage.scheduler, stage.waiting[0]) is False
    assert stage.hooks.around_queue_limit(limit, stage.scheduler, stage.waiting[1]) is True


@pytest.fixture
def limits(stage, monkeypatch):
    """The limit on running is 50 s, and what the clock says is in `now_s`."""
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(timeouts, "_has_limit", lambda: True)
    monkeypatch.setattr(timeouts, "_running_limit_s", lambda: 50.0)
    monkeypatch.setattr(timeouts.time, "perf_counter", lambda: clock.now_s)
    stage.scheduler._collect_inflight_batches = lambda: [stage.scheduler.running_batch, None]

    def left(*rids: str) -> list[str]:
        aborts = [SimpleNamespace(rid=rid) for rid in rids]
        return [abort.rid for abort in stage.hooks.around_timeouts(lambda scheduler: aborts, stage.scheduler)]

    return SimpleNamespace(clock=clock, left=left)


def test_who_was_taken_out_or_is_held_does_not_run_into_the_waiting_timeout(stage, limits):
    stage.turn()
    stage.waiting[0].make(3)
    assert limits.left("a", "b") == ["b"]
    stage.observer.governor.held.add("b")
    assert limits.left("a", "b") == []
    stage.observer.governor.next = Directive(2, Mode.OBSERVE)
    stage.hooks.before_next_batch(stage.scheduler)
    assert limits.left("a") == [], "its pause was ours, and it waits still"
    stage.waiting[1].make(3)
    stage.observer.governor.held.clear()
    assert limits.left("a", "b") == ["b"], "stock scheduling took it out"


def test_a_pause_does_not_count_as_running(stage, limits):
    """All began at 960. `a` is paused from 1000 to 1075, and the limit is 50."""
    stage.turn()
    for req in (stage.waiting[0], *stage.running):
        req.make(3)
        req.time_stats.forward_entry_time = 960.0
    assert limits.left() == []
    limits.clock.now_s = 1075.0
    stage.scheduler.waiting_queue.remove(back := stage.waiting[0])
    stage.scheduler.running_batch.reqs.append(back)
    assert limits.left("a", "x") == ["x"]
    stage.observer.governor.next = Directive(2, Mode.OFF)
    stage.hooks.before_next_batch(stage.scheduler)
    limits.clock.now_s = 1084.0
    assert limits.left("a") == [], "whatever the mode is by now"
    limits.clock.now_s = 1086.0
    assert limits.left("a") == ["a"], "it has run for more than the limit by itself"


def test_what_is_not_known_is_sglangs_to_end(stage, limits):
    stage.turn()
    assert limits.left("unknown") == ["unknown"]


def test_many_requests_leave_nothing_behind(stage, limits, monkeypatch):
    monkeypatch.setattr(timeouts, "MAX_KEPT_COUNT", 5)
    stage.turn()
    for number in range(20):
        req = FakeReq(f"r{number}")
        req.make(1)
        stage.scheduler.waiting_queue.append(req)
        limits.left()
        stage.scheduler.waiting_queue.remove(req)
        limits.left()
    assert len(stage.hooks._limits._paused_s) <= 6
    assert not stage.hooks._limits._out_since_s


def test_paused_streams_are_not_in_the_way_of_new_requests_nor_turned_away_for_them(stage):
    """The limit is two, and of three in the queue two have started."""
    stage.turn()
    for req in stage.waiting[:2]:
        req.make(3)
    seen = []

    def limit(scheduler, req):
        seen.append([waiting.rid for waiting in scheduler.waiting_queue])
        is_full = len(scheduler.waiting_queue) + 1 > 2
        if is_full:
            scheduler.waiting_queue.pop()  # as with priorities
        return is_full

    new = FakeReq("new")
    assert stage.hooks.around_queue_limit(limit, stage.scheduler, new) is False
    assert seen == [["c"]]
    assert stage.queue == ["a", "b", "c"]
    stage.scheduler.waiting_queue.append(new)
    assert stage.hooks.around_queue_limit(limit, stage.scheduler, FakeReq("newer")) is True
    assert stage.queue == ["a", "b", "c"]
