from types import SimpleNamespace

from sglang_fakes import FINISH_ABORT, FINISH_LENGTH, FakeReq

from tokenflow.link import Ack, Delivery, ReaderClass
from tokenflow.policy.buffer import VirtualBuffer
from tokenflow.policy.states import RateSource, RequestState
from tokenflow.sglang.annotation import Annotation, attach, attach_hidden
from tokenflow.sglang.readers import BATCH_READER, Reader
from tokenflow.sglang.tracker import KEEP_ENDED_COUNT, KEEP_ENDED_S, RequestTracker


def annotated(rid: str, rate_tok_s: float | None, arrival_s: float = 100.0) -> FakeReq:
    req = FakeReq(rid)
    reader = Reader("reading", rate_tok_s, RateSource.HEADER) if rate_tok_s else BATCH_READER
    attach(req.sampling_params, Annotation(reader, arrival_s, None))
    return req


def test_tokens_are_counted_at_each_step_and_the_first_delivery_starts_the_reader():
    tracker, req = RequestTracker(), annotated("tf-a", 2.0)
    entry = tracker.see(req, 100.0)
    assert entry is not None
    req.make(1)
    tracker.count_step([req], 100.5)
    assert entry.stream.first_token_s == 100.5
    assert entry.stream.buffer.consumed_tokens == 0
    tracker.take_delivery(Delivery("tf-a", 1, 101.0))
    assert entry.stream.ttft_s == 1.0
    assert tracker.new_ttfts_s == [1.0]
    req.make(9)
    tracker.count_step([req], 101.2)
    tracker.take_delivery(Delivery("tf-a", 10, 101.2))
    entry.stream.buffer.advance(103.0)
    assert entry.stream.buffer.consumed_tokens == 4.0
    assert entry.stream.buffer.unread_tokens == 6.0
    assert entry.stream.buffer.runway_s == 3.0
    assert tracker.totals.generated_tokens == 10


def test_a_request_by_an_unknown_route_is_tracked_without_a_reader():
    tracker, req = RequestTracker(), FakeReq("other")
    req.make(1)
    tracker.count_step([req], 5.0)
    assert tracker.requests["other"].stream.class_name == "batch"
    assert tracker.requests["other"].stream.buffer.runway_s is None
    assert tracker.requests["other"].stream.arrival_s == 5.0


def test_health_probes_are_nobodys_stream():
    tracker = RequestTracker()
    probe = FakeReq("HEALTH_CHECK_1")
    probe.make(1)
    tracker.count_step([probe], 1.0)
    assert not tracker.requests
    assert tracker.totals.generated_tokens == 0


def test_a_stream_that_is_met_midway_has_no_ttft():
    tracker, req = RequestTracker(), annotated("tf-m", 2.0)
    req.make(5)
    tracker.count_step([req], 107.0)
    tracker.take_delivery(Delivery("tf-m", 5, 107.1))
    assert tracker.requests["tf-m"].stream.ttft_s is None
    assert tracker.new_ttfts_s == []


def test_when_it_is_told_to_forget_nothing_of_sglang_is_held():
    tracker, req = RequestTracker(), annotated("tf-n", 2.0)
    tracker.see(req, 100.0)
    tracker.clear()
    assert not tracker.requests
    assert not tracker.ended


def test_a_warm_up_is_nobodys_stream():
    tracker, warm_up = RequestTracker(), FakeReq("tf-warm")
    attach_hidden(warm_up.sampling_params)
    warm_up.make(3)
    tracker.count_step([warm_up], 1.0)
    assert not tracker.requests


def test_a_batch_request_has_no_reader_and_no_ttft_sample():
    tracker, req = RequestTracker(), annotated("tf-b", None)
    tracker.see(req, 100.0)
    req.make(3)
    tracker.count_step([req], 100.5)
    tracker.take_delivery(Delivery("tf-b", 3, 101.0))
    entry = tracker.requests["tf-b"]
    assert entry.stream.buffer.delivered_tokens == 3
    assert entry.stream.buffer.unread_tokens is None
    assert tracker.new_ttfts_s == []
    assert entry.stream.ttft_s == 0.5


def test_a_finished_request_moves_over_once_although_it_stays_in_the_batch_for_a_step():
    tracker, req = RequestTracker(), annotated("tf-c", 2.0)
    req.make(2)
    req.finished_reason = FINISH_LENGTH()
    tracker.count_step([req], 101.0)
    tracker.count_step([req], 101.1)
    assert "tf-c" not in tracker.requests
    assert tracker.ended["tf-c"].stream.state is RequestState.FINISHED
    assert tracker.totals.generated_tokens == 2


def test_its_reader_reads_on_after_the_end_and_does_not_stall_there():
    tracker, req = RequestTracker(), annotated("tf-d", 2.0)
    req.make(4)
    tracker.count_step([req], 101.0)
    tracker.take_delivery(Delivery("tf-d", 3, 101.0))
    req.finished_reason = FINISH_LENGTH()
    tracker.count_step([req], 101.5)
    tracker.take_delivery(Delivery("tf-d", 4, 101.5, True))
    buffer = tracker.ended["tf-d"].stream.buffer
    buffer.advance(200.0)
    assert buffer.consumed_tokens == 4.0
    assert buffer.stall_s == 0.0


def test_an_aborted_request_says_so():
    tracker, req = RequestTracker(), annotated("tf-e", 2.0)
    tracker.see(req, 100.0)
    req.finished_reason = FINISH_ABORT()
    tracker.count_step([req], 101.0)
    assert tracker.ended["tf-e"].stream.state is RequestState.ABORTED


def test_ended_requests_are_bounded_in_number_and_age():
    tracker = RequestTracker()
    for number in range(KEEP_ENDED_COUNT + 10):
        req = annotated(f"tf-{number}", 2.0)
        req.finished_reason = FINISH_LENGTH()
        tracker.count_step([req], 100.0)
    assert len(tracker.ended) == KEEP_ENDED_COUNT
    tracker.forget_old(100.0 + KEEP_ENDED_S + 1)
    assert not tracker.ended


def test_deliveries_for_unknown_late_or_repeated_are_harmless():
    tracker, req = RequestTracker(), annotated("tf-f", 2.0)
    tracker.see(req, 100.0)
    tracker.take_delivery(Delivery("nobody", 5, 101.0))
    req.make(5)
    tracker.count_step([req], 101.0)
    tracker.take_delivery(Delivery("tf-f", 5, 101.0))
    tracker.take_delivery(Delivery("tf-f", 3, 100.5))
    tracker.take_delivery(Delivery("tf-f", 5, 99.0))
    assert tracker.requests["tf-f"].stream.buffer.delivered_tokens == 5


def test_sglangs_object_is_let_go_of_at_the_end():
    tracker, req = RequestTracker(), annotated("tf-g", 2.0)
    tracker.see(req, 100.0)
    req.retraction_count = 2
    req.finished_reason = FINISH_LENGTH()
    tracker.count_step([req], 101.0)
    assert tracker.ended["tf-g"].req is None
    assert tracker.totals.ended_preemption_count == 2
    assert isinstance(req.sampling_params, SimpleNamespace)


def delivered(tokens: int, rate_tok_s: float | None = 10.0, **reader) -> tuple[RequestTracker, VirtualBuffer]:
    """A tracker with one stream, and its buffer; all of `tokens` came at 101 s."""
    tracker, req = RequestTracker(), FakeReq("tf-a")
    attach(
        req.sampling_params,
        Annotation(Reader("reading", rate_tok_s, RateSource.HEADER, **reader), 100.0, None, True),
    )
    tracker.see(req, 100.0)
    req.make(tokens)
    tracker.count_step([req], 101.0)
    tracker.take_delivery(Delivery("tf-a", tokens, 101.0))
    return tracker, tracker.requests["tf-a"].stream.buffer


def test_an_ack_is_the_truth_about_what_was_read():
    tracker, buffer = delivered(100)
    tracker.take_ack(Ack("tf-a", 3, 105.0))
    assert (buffer.consumed_tokens, buffer.unread_tokens) == (3.0, 97.0)
    assert tracker.requests["tf-a"].stream.rate_source is RateSource.HEADER, "one ack measures nothing"
    tracker.take_ack(Ack("tf-a", 2, 106.0, 500.0))
    assert (buffer.acked_tokens, buffer.rate_tok_s) == (3, 10.0), "a late one changes nothing"
    tracker.take_ack(Ack("nobody", 3, 105.0))


def test_the_rate_is_measured_from_acks_and_capped_by_the_class():
    tracker, buffer = delivered(1000, max_rate_tok_s=25.0)
    stream = tracker.requests["tf-a"].stream
    for second in range(5):
        tracker.take_ack(Ack("tf-a", 3 * second, 101.0 + second))
    assert buffer.rate_tok_s == 3.0
    assert stream.rate_source is RateSource.ACK
    for second in range(5, 9):
        tracker.take_ack(Ack("tf-a", 12 + 30 * (second - 4), 101.0 + second))
    assert buffer.rate_tok_s == 25.0


def test_a_rate_that_the_client_names_holds_from_then_on():
    tracker, buffer = delivered(1000)
    tracker.take_ack(Ack("tf-a", 5, 102.0, 40.0))
    assert (buffer.rate_tok_s, tracker.requests["tf-a"].stream.rate_source) == (40.0, RateSource.ACK)


def test_an_agent_has_no_runway_before_its_first_ack():
    tracker, buffer = delivered(100, needs_ack=True)
    assert buffer.runway_s is None
    tracker.take_ack(Ack("tf-a", 0, 102.0))
    assert buffer.runway_s == 10.0


def test_a_class_may_change_in_mid_stream():
    tracker, buffer = delivered(100)
    stream = tracker.requests["tf-a"].stream
    tracker.take_ack(Ack("tf-a", 5, 102.0, None, ReaderClass("listening", 3.3, 5.0)))
    assert (stream.class_name, buffer.rate_tok_s, stream.rate_source) == ("listening", 3.3, RateSource.CLASS)
    tracker.take_ack(Ack("tf-a", 5, 103.0, 90.0))
    assert buffer.rate_tok_s == 5.0, "capped by the class that it is in now"
    tracker.take_ack(Ack("tf-a", 6, 104.0, None, ReaderClass("batch", None)))
    assert (buffer.rate_tok_s, buffer.runway_s) == (None, None)
    tracker.take_ack(Ack("tf-a", 7, 105.0, 8.0))
    assert buffer.rate_tok_s is None, "nobody reads along, whatever rate is named"


def test_what_is_made_after_the_client_left_is_counted_and_stalls_nobody():
    tracker, buffer = delivered(10)
    req = tracker.requests["tf-a"].req
    tracker.take_delivery(Delivery("tf-a", 10, 101.5, True, True))
    req.make(3)
    tracker.count_step([req], 110.0)
    assert tracker.totals.zombie_tokens == 3
    assert tracker.totals.disconnect_counts == {"stream": 1}
    buffer.advance(200.0)
    assert buffer.stall_s == 0.0
    tracker.take_delivery(Delivery("tf-a", 10, 111.0, True, True))
    assert tracker.totals.disconnect_counts == {"stream": 1}


def test_a_client_that_leaves_before_its_first_token():
    tracker, req = RequestTracker(), annotated("tf-l", 2.0)
    tracker.see(req, 100.0)
    tracker.take_delivery(Delivery("tf-l", 0, 101.0, True, True))
    assert tracker.totals.disconnect_counts == {"first_token": 1}


def test_a_client_that_does_not_drain_keeps_its_stream_out_above_the_bound():
    tracker, _ = delivered(10)
    tracker.max_backlog_tokens = 20
    entry = tracker.requests["tf-a"]
    entry.req.make(100)
    tracker.count_step([entry.req], 102.0)
    assert not entry.is_kept_out, "it is only made ahead: its client drains"
    tracker.take_delivery(Delivery("tf-a", 10, 102.5, is_blocked=True))
    entry.req.make(1)
    tracker.count_step([entry.req], 103.0)
    assert entry.is_kept_out
    tracker.take_delivery(Delivery("tf-a", 111, 104.0))
    assert not entry.is_kept_out


def test_hidden_reasoning_gives_no_runway_and_is_no_first_token():
    tracker, req = RequestTracker(), annotated("tf-h", 2.0)
    entry = tracker.see(req, 100.0)
    req.make(5)
    req.reasoning_tokens = 5
    tracker.count_step([req], 101.0)
    buffer = entry.stream.buffer
    assert (buffer.generated_tokens, buffer.hidden_tokens, buffer.runway_s) == (0, 5, 0.0)
    assert entry.stream.first_token_s is None
    req.make(2)
    req.reasoning_tokens = 6
    tracker.count_step([req], 102.0)
    assert (buffer.generated_tokens, buffer.made_tokens) == (1, 7)
    assert entry.stream.first_token_s == 102.0
    assert tracker.totals.generated_tokens == 7


def test_counters_by_class_follow_tokens_stalls_and_what_readers_could_use():
    tracker, req = RequestTracker(), annotated("tf-a", 2.0)
    tracker.see(req, 100.0)
    req.make(30)
    tracker.count_step([req], 100.5)
    tracker.take_delivery(Delivery("tf-a", 30, 101.0))
    counters = tracker.counters
    assert counters.ttft_s["reading"].counts[5] == 1, "one second: its own bucket's bound"
    # Of at most 100 tokens: those that meet up to 10 unread count fully, from 20 on not at all.
    assert counters.effective_tokens["reading"] == 11 + sum((20 - unread) / 10 for unread in range(11, 20))
    assert counters.generated_tokens == {}, "counted once a second, and at the end"
    tracker.sample(101.0)
    assert counters.generated_tokens == {"reading": 30}
    assert counters.runway_s["reading"].count == 1
    tracker.sample(118.0)
    assert counters.stall_s == {"reading": 2.0}
    req.make(5)
    req.finished_reason = FINISH_LENGTH()
    tracker.count_step([req], 119.0)
    assert counters.generated_tokens == {"reading": 35}
    assert counters.stall_s == {"reading": 3.0}
    tracker.sample(130.0)
    assert counters.stall_s == {"reading": 3.0}, "it has ended"


def test_what_was_made_while_nobody_looked_is_not_counted_and_nothing_is_counted_twice():
    tracker, req = RequestTracker(), annotated("tf-a", 2.0)
    tracker.see(req, 100.0)
    req.make(4)
    tracker.count_step([req], 100.5)
    tracker.clear()
    req.make(10)
    tracker.see(req, 101.0)
    req.make(2)
    tracker.count_step([req], 101.5)
    tracker.sample(102.0)
    assert tracker.counters.generated_tokens == {"reading": 6}


def test_tokens_for_nobody_are_counted_by_class():
    tracker, _ = delivered(10)
    req = tracker.requests["tf-a"].req
    tracker.take_delivery(Delivery("tf-a", 10, 101.5, True, True))
    before = tracker.counters.effective_tokens["reading"]
    req.make(3)
    tracker.count_step([req], 110.0)
    tracker.take_delivery(Delivery("tf-a", 13, 110.0, True, True))
    assert tracker.counters.zombie_tokens == {"reading": 3}
    assert tracker.counters.effective_tokens == {"reading": before}


def test_sums_do_not_fall_when_everything_is_forgotten():
    """Mode `off` and back: what a request had before is in the sums once."""
    tracker, req = RequestTracker(), annotated("tf-s", 2.0)
    entry = tracker.see(req, 100.0)
    req.make(1)
    tracker.count_step([req], 100.0)
    tracker.take_delivery(Delivery("tf-s", 1, 100.0))
    entry.stream.buffer.advance(104.0)
    stall_s = entry.stream.buffer.stall_s
    assert stall_s > 0.0
    req.retraction_count = 2
    tracker.clear()
    assert (tracker.totals.ended_stall_s, tracker.totals.ended_preemption_count) == (stall_s, 2)
    again = tracker.see(req, 105.0)
    assert (again.stream.preemption_count, again.earlier_preemption_count) == (2, 2)
    req.retraction_count = 3
    tracker.end(again, 106.0)
    assert tracker.totals.ended_preemption_count == 3
