import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang_fakes import FINISH_LENGTH, FakeReq, batch_of, scheduler_with

from tokenflow.link import Delivery
from tokenflow.policy.states import RateSource, Reason, RequestState
from tokenflow.sglang.annotation import Annotation, attach
from tokenflow.sglang.readers import Reader
from tokenflow.sglang.snapshot import VANISHED_AFTER_S, SnapshotBuilder, tail_of
from tokenflow.sglang.tracker import RequestTracker


@pytest.fixture
def tracker() -> RequestTracker:
    return RequestTracker()


def states(tracker: RequestTracker) -> dict[str, RequestState]:
    return {rid: entry.stream.state for rid, entry in tracker.requests.items()}


def test_states_come_from_where_the_scheduler_holds_a_request(tracker):
    waiting, taken_out, running, prefilling = FakeReq("w"), FakeReq("p"), FakeReq("r"), FakeReq("f")
    taken_out.make(3)
    running.make(2)
    SnapshotBuilder(tracker).reconcile(scheduler_with([waiting, taken_out], [running, prefilling]), 1.0)
    assert states(tracker) == {
        "w": RequestState.WAITING,
        "p": RequestState.PREEMPTED,
        "r": RequestState.RUNNING,
        "f": RequestState.PREFILLING,
    }
    assert tracker.requests["f"].stream.reason is Reason.ADMITTED
    assert tracker.requests["p"].stream.reason is Reason.PREEMPTED_KV_FULL


def test_a_waiting_request_says_whether_it_lacks_a_slot_or_memory(tracker):
    builder, waiting, running = SnapshotBuilder(tracker), FakeReq("w"), FakeReq("r")
    running.make(1)
    builder.reconcile(scheduler_with([waiting], [running], slots=1), 1.0)
    assert tracker.requests["w"].stream.reason is Reason.WAITING_CAPACITY
    builder.reconcile(scheduler_with([waiting], [running], slots=2), 1.1)
    assert tracker.requests["w"].stream.reason is Reason.WAITING_MEMORY


def test_a_prefill_in_the_last_batch_is_seen(tracker):
    scheduler = scheduler_with()
    scheduler.last_batch = batch_of(FakeReq("f"))
    scheduler.chunked_req = FakeReq("c")
    SnapshotBuilder(tracker).reconcile(scheduler, 1.0)
    assert states(tracker) == {"f": RequestState.PREFILLING, "c": RequestState.PREFILLING}


def test_one_that_the_scheduler_dropped_without_a_word_is_aborted_after_a_while(tracker):
    builder, req = SnapshotBuilder(tracker), FakeReq("w")
    builder.reconcile(scheduler_with([req]), 1.0)
    builder.reconcile(scheduler_with(), 1.0 + VANISHED_AFTER_S - 0.1)
    assert "w" in tracker.requests
    builder.reconcile(scheduler_with(), 1.0 + VANISHED_AFTER_S + 0.1)
    assert tracker.ended["w"].stream.state is RequestState.ABORTED


def test_one_whose_client_left_while_it_waited_is_aborted_soon(tracker):
    builder, req = SnapshotBuilder(tracker), FakeReq("w")
    builder.reconcile(scheduler_with([req]), 1.0)
    tracker.take_delivery(Delivery("w", 0, 1.1, True, True))
    builder.reconcile(scheduler_with(), 1.6)
    assert tracker.ended["w"].stream.state is RequestState.ABORTED


def test_demand_counts_and_rates(tracker):
    builder = SnapshotBuilder(tracker)
    reqs = [FakeReq(name) for name in "abc"]
    for req in reqs:
        attach(req.sampling_params, Annotation(Reader("reading", 2.0, RateSource.HEADER), 1.0, None))
    capacity = builder.reconcile(scheduler_with([reqs[2]], reqs[:2]), 1.0)
    assert capacity.demand_tok_s == 6.0
    assert (capacity.running_count, capacity.waiting_count, capacity.preempted_count) == (2, 1, 0)
    assert builder.quality(1.0).raw_tok_s == 0.0
    reqs[0].make(30)
    tracker.count_step([reqs[0]], 2.0)
    assert builder.quality(3.0).raw_tok_s == 15.0


def test_preemptions_are_summed_over_live_and_ended(tracker):
    builder, req = SnapshotBuilder(tracker), FakeReq("r")
    builder.reconcile(scheduler_with([], [req]), 0.5)
    req.make(1)
    req.retraction_count = 2
    builder.reconcile(scheduler_with([req]), 1.0)
    assert builder.quality(1.0).preemption_total == 2
    assert tracker.counters.preemptions == {"batch": {"preempted_kv_full": 1}}, "once, however often it is looked at"
    req.finished_reason = FINISH_LENGTH()
    tracker.count_step([req], 2.0)
    assert builder.quality(2.0).preemption_total == 2


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=300))
def test_a_tail_is_one_of_its_samples_and_ordered(samples):
    tail = tail_of(samples)
    assert tail.p50 in samples
    assert tail.p99 in samples
    assert tail.p50 <= tail.p99 <= max(samples)
    assert tail.count == len(samples)
    if len(samples) < 100:
        assert tail.p99 == max(samples)


def test_no_samples_is_no_number():
    assert tail_of([]).p50 is None


def test_the_longest_wait_and_the_longest_pause_are_told_and_an_operator_s_hold_is_no_pause(tracker):
    builder, waiting, paused = SnapshotBuilder(tracker), FakeReq("w"), FakeReq("p", retraction_count=1)
    paused.make(3)
    builder.reconcile(scheduler_with([waiting, paused]), 10.0)
    capacity = builder.reconcile(scheduler_with([waiting, paused]), 14.0)
    assert (capacity.waiting_age_s, capacity.preempted_age_s) == (4.0, 4.0)
    tracker.requests["p"].is_held = True
    assert builder.reconcile(scheduler_with([waiting, paused]), 15.0).preempted_age_s is None
    assert builder.reconcile(scheduler_with([], [waiting, paused]), 16.0).waiting_age_s is None
