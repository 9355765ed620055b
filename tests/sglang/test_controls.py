"""The operator's hand on the scheduler: what is put in force, what is refused and in which words."""

import time
from types import SimpleNamespace

import pytest
from sglang_fakes import FINISH_LENGTH, FakeReq, scheduler_with

from tokenflow import link
from tokenflow.events import EventKind
from tokenflow.policy.carry import Carry
from tokenflow.policy.plan import Plan
from tokenflow.policy.states import Mode, RateSource, RequestState, Variant
from tokenflow.policy.tunables import plain
from tokenflow.sglang import annotation
from tokenflow.sglang import governor as governor_module
from tokenflow.sglang.actuator import Actuator
from tokenflow.sglang.controls import CommandRefusedError, Controls, carry_out
from tokenflow.sglang.directive import DeviceRelease
from tokenflow.sglang.governor import Governor
from tokenflow.sglang.kv_tree import Copies
from tokenflow.sglang.readers import Reader
from tokenflow.sglang.settings import PluginSettings

WHO = "uid=1 pid=2"


@pytest.fixture
def blockers(monkeypatch):
    """The options that rule `enforce` out; SGLang's own modules are not needed for the rest."""
    found: list[str] = []
    monkeypatch.setattr(governor_module, "find_blockers", lambda scheduler: list(found))
    return found


@pytest.fixture
def waiting():
    return FakeReq("waiting")


@pytest.fixture
def running():
    req = FakeReq("running")
    req.make(3)
    return req


@pytest.fixture
def governor(blockers, waiting, running):
    scheduler = scheduler_with([waiting], [running])
    scheduler.is_fully_idle = lambda ignore_waiting=False: (
        not scheduler.running_batch.reqs and (ignore_waiting or not scheduler.waiting_queue)
    )
    made = Governor(scheduler, PluginSettings(mode=Mode.ENFORCE, tunables={"reserve_s": 0.25}), Actuator(scheduler))
    made.scheduler = scheduler
    made.builder.reconcile(scheduler, 1.0)
    return made


@pytest.fixture
def controls(governor):
    return Controls(governor, governor.events)


def events_of(governor):
    return [(event.kind, event.rid, event.who, event.terms) for event in governor.events.take(100)]


def refusal(controls, command) -> CommandRefusedError:
    with pytest.raises(CommandRefusedError) as caught:
        carry_out(controls, command)
    return caught.value


def test_the_engine_starts_with_what_it_was_told(governor):
    assert (governor.tunables.mode, governor.tunables.reserve_s) == (Mode.ENFORCE, 0.25)


def test_enforce_at_the_start_becomes_observe_where_an_option_blocks_it(blockers):
    blockers.append("--speculative-algorithm X")
    scheduler = scheduler_with()
    assert Governor(scheduler, PluginSettings(mode=Mode.ENFORCE), Actuator(scheduler)).mode is Mode.OBSERVE


def test_what_is_tuned_is_in_force_and_told(controls, governor):
    changes = {"variant": "paper", "quantum_s": "0.5", "reserve_s": 0.25}
    reply = carry_out(controls, link.Tune(changes=changes, who=WHO))
    assert reply["tunables"] == plain(governor.tunables)
    assert reply["tuned_keys"] == ["variant", "quantum_s"]
    assert (governor.tunables.variant, governor.driver.tunables.quantum_s) == (Variant.PAPER, 0.5)
    assert controls._governor.revision == 1
    assert events_of(governor) == [
        (EventKind.TUNED, None, WHO, {"key": "variant", "old": "tokenflow", "new": "paper"}),
        (EventKind.TUNED, None, WHO, {"key": "quantum_s", "old": 1.0, "new": 0.5}),
    ]


def test_values_that_are_in_force_already_change_nothing(controls, governor):
    carry_out(controls, link.Tune(changes={"variant": "tokenflow"}))
    assert (controls._governor.revision, events_of(governor)) == (0, [])


def test_all_or_nothing_and_every_problem_at_once(controls, governor, blockers):
    before = governor.tunables
    error = refusal(controls, link.Tune(changes={"quantum_s": 99, "nosuch": 1, "variant": "best", "reserve_s": 1}))
    assert error.code == "usage"
    assert all(word in error.message for word in ("quantum_s", "nosuch", "variant"))
    assert error.field == "quantum_s"
    assert (governor.tunables, controls._governor.revision) == (before, 0)


def test_a_stale_revision_is_an_error_of_its_own(controls, governor):
    carry_out(controls, link.Tune(changes={"quantum_s": 2}, if_revision=0))
    error = refusal(controls, link.Tune(changes={"quantum_s": 3}, if_revision=0))
    assert error.code == "revision_mismatch"
    assert governor.tunables.quantum_s == 2


def test_a_dry_run_says_what_would_be(controls, governor):
    reply = carry_out(controls, link.Tune(changes={"quantum_s": 2}, dry_run=True))
    assert reply["tunables"]["quantum_s"] == 2
    assert (governor.tunables.quantum_s, controls._governor.revision) == (1.0, 0)
    assert refusal(controls, link.Tune(changes={"quantum_s": 99}, dry_run=True)).code == "usage"


@pytest.mark.parametrize("command", [link.SetMode(mode=Mode.ENFORCE), link.Tune(changes={"mode": "enforce"})])
def test_both_ways_to_set_the_mode_check_the_same(controls, governor, command):
    carry_out(controls, link.SetMode(mode=Mode.OBSERVE))
    governor.blockers = ["--pp-size 2"]
    error = refusal(controls, command)
    assert (error.code, error.hint) == ("unsupported", "tfctl mode observe")
    assert "--pp-size 2" in error.message
    governor.blockers = []
    carry_out(controls, command)
    assert governor.mode is Mode.ENFORCE


@pytest.mark.parametrize(("source", "expected"), [(RateSource.DEFAULT, 9.0), (RateSource.HEADER, 6.0)])
def test_the_default_rate_holds_for_new_streams_that_name_none(controls, governor, source, expected):
    carry_out(controls, link.Tune(changes={"default_rate_tok_s": 9.0}))
    req = FakeReq("new")
    annotation.attach(req.sampling_params, annotation.Annotation(Reader("reading", 6.0, source), 1.0, None))
    assert governor.tracker.see(req, 2.0).stream.buffer.rate_tok_s == expected


def test_a_held_request_is_held_once_and_let_go(controls, governor):
    for _ in range(2):
        reply = carry_out(controls, link.PauseRequest(rid="running", who=WHO))
        assert reply == {"held_state": RequestState.RUNNING}
    assert governor.tracker.requests["running"].is_held
    assert carry_out(controls, link.ResumeRequest(rid="running", who=WHO)) == {"held_state": RequestState.RUNNING}
    assert not governor.tracker.requests["running"].is_held
    assert events_of(governor) == [
        (EventKind.HELD, "running", WHO, {"state": "running"}),
        (EventKind.UNHELD, "running", WHO, {"state": "running"}),
    ]


def test_a_decision_is_explained_with_every_term(controls, governor):
    governor.driver.decide(2.0)
    found = carry_out(controls, link.ExplainStream(rid="running"))["explanation"]
    assert (found["rid"], found["state"]) == ("running", "running")
    assert {"unread_tokens", "evict_s", "safety_factor", "slots_free"} <= set(found["terms"])
    waiting = carry_out(controls, link.ExplainStream(rid="waiting"))["explanation"]
    assert waiting["state"] == "waiting"
    assert link.decode_reply(link.encode(link.Reply(plugin_version="1", pid=1, plugin="active", explanation=found)))


def test_what_cannot_be_explained(controls, governor):
    assert refusal(controls, link.ExplainStream(rid="nosuch")).code == "not_found"
    error = refusal(controls, link.ExplainStream(rid="running"))
    assert (error.code, error.hint) == ("conflict", "tfctl explain running")  # no decision has been made yet
    governor.driver.decide(2.0)
    carry_out(controls, link.SetMode(mode=Mode.OFF))
    assert refusal(controls, link.ExplainStream(rid="running")).code == "unsupported"


def test_who_cannot_be_held(controls, governor, running):
    assert refusal(controls, link.PauseRequest(rid="runnin")).code == "not_found"
    running.return_logprob = True
    assert refusal(controls, link.PauseRequest(rid="running")).code == "unsupported"
    assert refusal(controls, link.ResumeRequest(rid="running")).code == "conflict"
    running.finished_reason = FINISH_LENGTH()
    governor.tracker.end(governor.tracker.requests["running"], 2.0)
    assert refusal(controls, link.PauseRequest(rid="running")).code == "conflict"
    assert refusal(controls, link.ResumeRequest(rid="running")).code == "conflict"
    carry_out(controls, link.SetMode(mode=Mode.OBSERVE))
    error = refusal(controls, link.PauseRequest(rid="waiting"))
    assert (error.code, error.hint) == ("unsupported", "tfctl mode enforce")


def test_the_end_of_enforce_lets_everybody_go_and_says_so(controls, governor):
    carry_out(controls, link.PauseRequest(rid="waiting"))
    governor.tracker.requests["running"].stream.state = RequestState.PREEMPTED
    governor.events.take(10)
    carry_out(controls, link.SetMode(mode=Mode.OBSERVE, who=WHO))
    assert not governor.tracker.requests["waiting"].is_held
    assert events_of(governor) == [
        (EventKind.UNHELD, "waiting", None, {"state": "waiting"}),
        (EventKind.MODE, None, WHO, {"old": "enforce", "new": "observe", "paused_count": 1, "unheld_count": 1}),
    ]


def test_enforcing_that_proves_impossible_ends_with_its_reason(governor):
    governor.stop_enforcing("rank_skew")
    assert (governor.mode, governor.revision, governor.blockers) == (Mode.OBSERVE, 1, ["rank_skew"])
    (event,) = governor.events.take(5)
    assert (event.kind, event.reason) == (EventKind.MODE, "rank_skew")


def test_an_engine_in_which_all_are_held_has_nothing_to_do(controls, governor):
    scheduler = governor.scheduler
    carry_out(controls, link.PauseRequest(rid="waiting"))
    assert not governor.only_held_wait
    scheduler.running_batch.reqs.clear()
    assert governor.only_held_wait
    scheduler.waiting_queue.append(FakeReq("HEALTH_CHECK_1"))
    assert not governor.only_held_wait


def test_it_sleeps_a_moment_where_sglang_would(controls, governor, monkeypatch):
    scheduler, polled = governor.scheduler, []
    monkeypatch.setattr(governor.driver, "decide", lambda now_s: Plan(Carry()))
    scheduler.idle_sleeper = SimpleNamespace(poller=SimpleNamespace(poll=polled.append))
    carry_out(controls, link.PauseRequest(rid="waiting"))
    governor.decide(2.0)
    assert polled == []
    scheduler.running_batch.reqs.clear()
    directive = governor.decide(3.0)
    assert polled == [governor_module.HELD_NAP_MS]
    assert directive.held_back == ("waiting",)


def test_what_is_held_is_told_to_leave_the_device_once(controls, governor, monkeypatch):
    class Kept:
        def __contains__(self, rid):
            return rid == "running"

        def copies(self, req):
            return Copies(device_tokens=9, both_tokens=4, host_tokens=4)

    monkeypatch.setattr(governor.driver, "decide", lambda now_s: Plan(Carry()))
    monkeypatch.setattr(type(governor.driver.kv), "has_host_pool", True)
    carry_out(controls, link.PauseRequest(rid="running"))
    assert governor.decide(2.0).releases == ()
    governor.actuator.kept = Kept()
    assert governor.decide(3.0).releases == (DeviceRelease("running", 9),)
    assert governor.decide(4.0).releases == ()


def test_a_stream_that_sglang_itself_took_out_is_told(governor, running, monkeypatch):
    scheduler = governor.scheduler
    monkeypatch.setattr(governor.driver, "decide", lambda now_s: Plan(Carry()))
    scheduler.running_batch.reqs.clear()
    scheduler.waiting_queue.append(running)
    governor.decide(2.0)
    (event,) = governor.events.take(5)
    assert (event.kind, event.rid, event.terms["cause"]) == (EventKind.PREEMPTED, "running", "engine")
    assert governor.tracker.requests["running"].paused_since_s == 2.0


def test_overload_is_told_when_it_begins_and_when_it_ends(governor, monkeypatch):
    carries = iter([False, True, True, False])

    def decide(now_s):
        governor.driver._carry = Carry(is_overloaded=next(carries))
        return Plan(governor.driver._carry)

    monkeypatch.setattr(governor.driver, "decide", decide)
    for now_s in range(4):
        governor.decide(float(now_s))
    assert [event.kind for event in governor.events.take(9)] == [
        EventKind.OVERLOAD_ENTERED, EventKind.OVERLOAD_LEFT,
    ]  # fmt: skip


def test_late_commands_and_those_of_others_are_refused(controls):
    assert refusal(controls, link.PauseRequest(rid="running", deadline_s=time.monotonic() - 1)).code == "timeout"
    assert refusal(controls, link.CutStreams(message="x")).code == "unsupported"
