"""The kept minutes, and where in them the view stands."""

from datetime import UTC, datetime

import pytest
from document_samples import event_rows, request_rows, status_document

from tokenflow.policy.states import RequestState
from tokenflow.wire import EngineState, RequestsDocument
from tokenflow_tui.clock import Clock
from tokenflow_tui.history import History
from tokenflow_tui.moment import Moment, Packed, Sample, UnreadableError, pack
from tokenflow_tui.timelines import Timelines


def moment(at_s, rows=None, events=()):
    rows = request_rows() if rows is None else rows
    return Moment(
        at_s=at_s,
        status=status_document(EngineState.SERVING),
        requests=RequestsDocument(requests=rows, total_count=len(rows)),
        events=list(events),
    )


def filled(count, step_s=0.5, **limits):
    history = History(**limits)
    for index in range(count):
        history.append(moment(100.0 + index * step_s))
    return history


def test_what_is_packed_comes_out_as_it_was():
    given = moment(100.0, events=event_rows())
    packed = pack(given)
    assert packed.moment() == given
    assert packed.sample == Sample(1.23, 0.3, 0, 57.2)


def test_damage_is_told():
    with pytest.raises(UnreadableError):
        Packed(1.0, Sample(), b"no zlib").moment()


def test_what_is_older_than_the_limit_is_forgotten():
    history = filled(400, kept_s=60.0)
    assert history.stamp_s(len(history) - 1) - history.stamp_s(0) < 60.0 + 40.0
    assert len(history) < 200
    assert history.moment(0).at_s == history.stamp_s(0)


def test_what_is_beyond_the_room_is_forgotten():
    one = len(pack(moment(1.0)).body)
    history = filled(300, kept_bytes=100 * one)
    assert 50 < len(history) < 180


def test_a_clock_that_is_set_back_does_not_break_the_order():
    history = History()
    for at_s in (100.0, 101.0, 40.0, 41.0):
        history.append(moment(at_s))
    stamps = [history.stamp_s(index) for index in range(len(history))]
    assert stamps == sorted(stamps)


def test_steps_back_and_forth_end_live():
    clock = Clock(filled(61))
    assert clock.is_live
    assert clock.index == 60
    clock.step(-5.0)
    assert (clock.index, clock.behind_s) == (50, 5.0)
    clock.step(-0.001)
    assert clock.index == 49  # a step is one moment at least
    clock.step(-1e9)
    assert clock.index == 0
    clock.step(5.0)
    assert (clock.index, clock.is_live) == (10, False)
    clock.step(1e9)
    assert clock.is_live


def test_a_frozen_clock_stays_while_moments_come_and_go():
    history = filled(10, kept_s=60.0)
    clock = Clock(history)
    clock.freeze()
    at_s = history.stamp_s(clock.index)
    history.append(moment(110.0))
    assert history.stamp_s(clock.index) == at_s
    for index in range(300):
        history.append(moment(111.0 + index))
    assert clock.index == 0  # its own moment is forgotten: the oldest there is
    clock.follow()
    assert clock.index == len(history) - 1


def test_nothing_yet():
    clock = Clock(History())
    clock.step(-5.0)
    clock.freeze()
    assert clock.index is None
    assert clock.behind_s == 0.0


def test_a_timeline_has_each_state_from_when_it_was_seen():
    lines = Timelines()
    row = request_rows()[1]
    for at_s, state in ((1.0, RequestState.RUNNING), (2.0, RequestState.RUNNING), (3.0, RequestState.PREEMPTED)):
        row.state = state
        lines.take(moment(at_s, [row]))
    line = lines.of(row.rid)
    assert line.spans == [(1.0, RequestState.RUNNING), (3.0, RequestState.PREEMPTED)]
    assert [line.state_at(at_s) for at_s in (0.5, 1.0, 2.9, 3.0, 3.1)] == [
        None,
        RequestState.RUNNING,
        RequestState.RUNNING,
        RequestState.PREEMPTED,
        None,
    ]
    assert lines.of("nobody") is None


def test_events_lie_with_their_request():
    lines = Timelines()
    lines.take(moment(1.0, events=event_rows()))
    assert [event.kind for event in lines.of("tf-00000000000000a1").events] == ["held", "preempted", "resumed"]


def test_a_timeline_begins_with_the_pauses_that_were_before_the_view():
    row = next(row for row in request_rows() if row.rid == "tf-00000000000000a1")
    told = {event.kind: event for event in event_rows() if event.rid == row.rid}
    paused_s = datetime.fromisoformat(told["preempted"].at).timestamp()
    back_s = paused_s + 3.0
    told["resumed"].at = datetime.fromtimestamp(back_s, UTC).isoformat()
    lines = Timelines()
    row.state = RequestState.PREEMPTED  # again, and seen so
    lines.take(moment(back_s + 5.0, [row], list(told.values())))
    spans = [(paused_s, RequestState.PREEMPTED), (back_s, RequestState.RUNNING), (back_s + 5.0, RequestState.PREEMPTED)]
    assert lines.of(row.rid).spans == spans
    assert lines.of(row.rid).state_at(back_s + 1.0) is RequestState.RUNNING
