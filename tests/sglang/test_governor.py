"""What a plan becomes as a directive, on small stand-ins."""

from types import SimpleNamespace

import pytest
from sglang_fakes import FakeReq, scheduler_with

from tokenflow.policy.carry import Carry
from tokenflow.policy.plan import Action, Cause, Decision, Plan, Release, Write
from tokenflow.policy.states import Mode, Reason, RequestState
from tokenflow.sglang import governor as module
from tokenflow.sglang.actuator import Actuator
from tokenflow.sglang.directive import DeviceRelease, WriteUpTo
from tokenflow.sglang.governor import Governor
from tokenflow.sglang.kv_tree import Copies
from tokenflow.sglang.settings import PluginSettings


class Stage:
    def __init__(self, waiting, running):
        self.scheduler = scheduler_with(waiting, running)
        self.scheduler.last_batch = None
        self.actuator = Actuator(self.scheduler)
        self.governor = Governor(self.scheduler, PluginSettings(mode=Mode.ENFORCE), self.actuator)
        self.plan = Plan(Carry())
        self.governor.driver.decide = lambda now_s: self.plan

    def directive(self, **orders):
        self.plan = Plan(Carry(), **orders)
        return self.governor.decide(1.0)


@pytest.fixture
def stage(monkeypatch):
    monkeypatch.setattr(module, "find_blockers", lambda scheduler: [])
    paused = FakeReq("p")
    paused.make(3)
    return Stage([FakeReq("w"), paused], [FakeReq("x"), FakeReq("y")])


def pause(rid):
    return Decision(rid, 0, Action.PAUSE_OFFLOAD, Reason.PREEMPTED_SURPLUS, Cause.FIRST_TOKEN)


def start(rid, action=Action.ADMIT):
    return Decision(rid, 0, action, Reason.ADMITTED, Cause.FREE_PLACE)


def test_starts_are_named_with_how_and_everybody_else_is_held_back(stage):
    directive = stage.directive(pauses=(pause("x"),), starts=(start("p", Action.RESUME_RECOMPUTE),))
    assert directive.mode is Mode.ENFORCE
    assert directive.pauses == ("x",)
    assert directive.starts == directive.recomputes == ("p",)
    assert set(directive.held_back) == {"w", "x"}
    assert stage.directive().sequence > directive.sequence


def test_writes_are_positions_and_short_pieces_wait(stage):
    req = stage.scheduler.running_batch.reqs[0]
    req.kv = SimpleNamespace(kv_committed_len=70, holds_kv=True, cache_protected_len=20)
    assert stage.directive(writes=(Write("x", 0, 30),)).writes == (WriteUpTo("x", 50),)
    assert stage.directive(writes=(Write("x", 0, 900),)).writes == (WriteUpTo("x", 70),)
    assert stage.directive(writes=(Write("x", 0, 15),)).writes == ()


@pytest.mark.parametrize(("tokens", "may_give_up"), [(50, False), (51, True)])
@pytest.mark.parametrize("rid", ["p", "x"])
def test_only_what_the_plan_gives_up_may_be_lost(stage, monkeypatch, rid, tokens, may_give_up):
    kept = stage.actuator.kept
    monkeypatch.setattr(kept, "written_tokens", lambda req: 40)
    if rid == "p":
        kept._kept["p"] = object()
        monkeypatch.setattr(type(kept), "copies", lambda self, req: Copies(60, 45, 40))
    found = stage.directive(releases=(Release(rid, 0, tokens, write_tokens=10),)).releases
    assert found == (DeviceRelease(rid, tokens, may_give_up),)


def test_telemetry_and_the_decision_of_one_turn_look_once(stage, monkeypatch):
    looks = []
    look = stage.governor.builder.reconcile
    monkeypatch.setattr(stage.governor.builder, "reconcile", lambda *args: looks.append(1) or look(*args))
    assert stage.governor.reconcile(1.0).running_count == 2
    stage.directive()
    assert len(looks) == 1
    stage.governor.end_turn()
    stage.governor.decide(1.1)
    assert len(looks) == 2


def test_those_with_the_longest_runway_leave_first_when_kv_is_full(stage):
    stage.governor.builder.reconcile(stage.scheduler, 1.0)
    for rid, rate_tok_s in (("x", 4.0), ("y", 2.0)):
        buffer = stage.governor.tracker.requests[rid].stream.buffer
        buffer.rate_tok_s = rate_tok_s
        buffer.deliver(1.0, 8)
    assert stage.directive().retraction_order == ("x", "y")


def test_whoever_is_far_ahead_or_read_by_nobody_has_its_place_in_that_order(stage):
    stage.governor.builder.reconcile(stage.scheduler, 1.0)
    entries = {rid: stage.governor.tracker.requests[rid] for rid in ("x", "y")}
    for rid, rate_tok_s in (("x", 4.0), ("y", 2.0)):
        entries[rid].stream.buffer.rate_tok_s = rate_tok_s
        entries[rid].stream.buffer.deliver(1.0, 8)
    stage.governor.driver.far_ahead_rids = lambda: frozenset({"y"})
    assert stage.directive().retraction_order == ("y", "x")  # it goes on to its end
    entries["y"].is_blocked = True
    assert stage.directive().retraction_order == ("x", "y")


def test_pauses_are_noted_once_they_are_made(stage):
    directive = stage.directive(pauses=(pause("x"),))
    stage.actuator.carry_out(directive)
    stage.governor.note(stage.actuator.paused, 2.0)
    stream = stage.governor.tracker.requests["x"].stream
    assert (stream.state, stream.reason) == (RequestState.PREEMPTED, Reason.PREEMPTED_SURPLUS)
    assert stage.governor.tracker.counters.preemptions[stream.class_name][Reason.PREEMPTED_SURPLUS] == 1


def test_ranks_that_differ_block_enforcing(stage):
    stage.actuator.carry_out(stage.directive())
    stage.governor.stop_enforcing("rank_skew")
    assert stage.governor.mode is Mode.OBSERVE
    assert stage.governor.blockers == ["rank_skew"]
    directive = stage.governor.decide(2.0)
    assert directive.mode is Mode.OBSERVE
    stage.actuator.carry_out(directive)
    assert stage.governor.decide(3.0) is None


def test_a_stream_whose_client_does_not_drain_it_is_paused_for_its_surplus_and_not_by_an_operator(monkeypatch):
    """By the policy itself, although nobody else wants the place."""
    monkeypatch.setattr(module, "find_blockers", lambda scheduler: [])
    req = FakeReq("x")
    req.make(5)
    stage = Stage([], [req])
    del stage.governor.driver.decide
    governor = stage.governor
    governor.reconcile(0.5)
    governor.end_turn()
    governor.tracker.requests["x"].is_backlogged = True
    for turn in range(1, 20):  # whoever has just begun is left alone for a quantum
        directive = governor.decide(float(turn))
        governor.end_turn()
        if directive is not None and directive.pauses:
            break
        req.make(1)
        governor.tracker.count_step([req], float(turn))
    assert directive.pauses == ("x",)
    stage.actuator.carry_out(directive)
    governor.note(stage.actuator.paused, 20.0)
    assert governor.tracker.requests["x"].stream.reason is Reason.PREEMPTED_SURPLUS
    [event] = [event for event in governor.events.take(9) if event.rid == "x"]
    assert (event.reason, event.terms["cause"]) == ("preempted_surplus", "slow_client")
    assert governor.is_held("x")
