"""Events: bounded, numbered, and with what SGLang's own requests say."""

import msgspec
import pytest
from sglang_fakes import FakeReq

from tokenflow.events import Event, EventKind
from tokenflow.policy.plan import Action, Cause, Decision
from tokenflow.policy.states import Reason
from tokenflow.sglang.event_log import KEPT_EVENTS, EventLog, SwapEvents
from tokenflow.sglang.tracker import RequestTracker


def test_what_nobody_takes_is_overwritten_and_the_gap_shows():
    log = EventLog()
    for number in range(KEPT_EVENTS + 5):
        log.note(EventKind.HELD, f"tf-{number}")
    taken = log.take(3)
    assert [event.sequence for event in taken] == [6, 7, 8]
    assert taken[0].rid == "tf-5"
    assert len(log.take(10 * KEPT_EVENTS)) == KEPT_EVENTS - 3
    assert log.take(5) == []


def test_an_event_crosses_the_link():
    log = EventLog()
    terms = {"key": "variant", "new": "paper", "ratio": 0.5, "count": 3, "flag": True, "none": None}
    log.note(EventKind.TUNED, who="uid=1 pid=2", terms=terms)
    (event,) = log.take(1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=Event) == event


@pytest.fixture
def swaps():
    log = EventLog()
    made = SwapEvents(log, 100.0, has_host_pool=True)
    made.log = log
    return made


def pause(swaps, entry, req, **terms):
    decision = Decision("a", 0, Action.PAUSE_KEEP, Reason.PREEMPTED_SURPLUS, Cause.FIRST_TOKEN, **terms)
    swaps.decided([decision], {"a": entry})
    assert swaps.paused(entry, 10.0) is Reason.PREEMPTED_SURPLUS
    return swaps.log.take(1)[0]


@pytest.fixture
def req():
    made = FakeReq("a")
    made.make(8)
    made.kv.kv_committed_len, made.kv.cache_protected_len = 12, 4
    return made


@pytest.fixture
def entry(req):
    return RequestTracker().see(req, 1.0)


def test_a_pause_says_what_had_yet_to_be_written(swaps, entry, req):
    event = pause(swaps, entry, req, runway_s=3.25, required_runway_s=0.5)
    assert (event.kind, event.rid, event.reason) == (EventKind.PREEMPTED, "a", "preempted_surplus")
    assert event.terms["kv_tokens"] == 12
    assert event.terms["evict_bytes"] == 800
    assert (event.terms["runway_s"], event.terms["required_runway_s"]) == (3.25, 0.5)
    assert (event.terms["action"], event.terms["cause"]) == ("pause_keep", "first_token")


def test_where_nobody_reads_along_there_is_no_runway(swaps, entry, req):
    assert pause(swaps, entry, req, runway_s=float("inf")).terms["runway_s"] is None


def test_without_a_host_pool_nothing_is_evicted(entry, req):
    log = EventLog()
    swaps = SwapEvents(log, 100.0, has_host_pool=False)
    swaps.log = log
    assert pause(swaps, entry, req).terms["evict_bytes"] == 0


@pytest.mark.parametrize(
    ("prefix_tokens", "loaded_tokens", "how", "recomputed_tokens"),
    [(12, 0, "kept", 0), (12, 9, "load", 0), (8, 4, "load", 4), (4, 0, "recompute", 8)],
)
def test_a_resume_says_where_the_kv_came_from(swaps, entry, req, prefix_tokens, loaded_tokens, how, recomputed_tokens):
    pause(swaps, entry, req)
    req.prefix_len, req.host_loaded_length = prefix_tokens, loaded_tokens
    swaps.resumed([entry], 12.5)
    (event,) = swaps.log.take(5)
    assert (event.kind, event.rid) == (EventKind.RESUMED, "a")
    assert event.terms == {
        "how": how,
        "cached_tokens": prefix_tokens,
        "recomputed_tokens": recomputed_tokens,
        "load_tokens": loaded_tokens,
        "load_bytes": 100 * loaded_tokens,
        "paused_s": 2.5,
    }


def test_what_the_engine_took_out_by_itself_is_told_too(swaps, entry, req):
    swaps.retracted([entry], 11.0)
    (event,) = swaps.log.take(5)
    assert (event.kind, event.reason, event.terms["cause"]) == (EventKind.PREEMPTED, "preempted_kv_full", "engine")
    swaps.resumed([entry], 12.0)
    assert swaps.log.take(5)[0].terms["paused_s"] == 1.0


def test_what_leaves_the_device_is_told_in_bytes(swaps):
    swaps.released("a", 7)
    (event,) = swaps.log.take(5)
    assert (event.kind, event.rid, event.terms) == (EventKind.RELEASED, "a", {"tokens": 7, "released_bytes": 700})
