"""What a recorder makes of chunks, with times worked out by hand, and the figures over several streams."""

import pytest

from tokenflow.loadgen.chunks import Chunk
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.recorder import StreamRecorder
from tokenflow.loadgen.result import Outcome, StreamResult, distribution, summarise

PLAN = StreamPlan(index=0, arrival_s=1.0, prompt="p", rate_tok_s=4.0, max_tokens=8)


def recorder(**options) -> StreamRecorder:
    made = StreamRecorder(PLAN, **options)
    made.send(1.25)
    made.respond(200, "r1")
    return made


def test_a_stream_from_first_to_last():
    stream = recorder(keep_text=True)
    stream.receive(1.5, Chunk())  # the role comes without a token
    stream.receive(2.0, Chunk(text="a", completion_tokens=2, prompt_tokens=7))
    stream.receive(3.0, Chunk(text="b", completion_tokens=3))
    stream.receive(3.0, Chunk(finish_reason="stop"))
    stream.receive(3.25, Chunk(completion_tokens=4))  # the end-of-text token has no text: it is in the final count
    stream.end(3.25, Outcome.COMPLETED)
    result = stream.result()
    assert result.ttft_s == 0.75
    assert result.dispatch_lag_s == 0.25
    assert result.duration_s == 2.0
    assert result.token_times_s == [2.0, 2.0, 3.0, 3.25]
    assert result.token_count == 4
    assert result.prompt_tokens == 7
    assert result.text == "ab"
    assert result.finish_reason == "stop"
    # Two tokens at 4 tok/s: dry from 2.5 to 3.0. One more: read to its end at 3.25.
    assert result.stall_s == pytest.approx(0.5)
    assert result.stall_count == 1
    assert result.is_complete


def test_without_counts_a_chunk_with_text_is_a_token():
    stream = recorder()
    for text in ("", "a", "b", ""):
        stream.receive(2.0, Chunk(text=text))
    assert stream.result().token_count == 2
    assert stream.result().text is None


def test_counts_never_go_back():
    stream = recorder()
    stream.receive(2.0, Chunk(text="a", completion_tokens=5))
    stream.receive(2.5, Chunk(text="b", completion_tokens=3))
    assert stream.token_count == 5


def test_the_first_end_counts():
    stream = recorder()
    stream.end(2.0, Outcome.FAILED, "x")
    stream.end(3.0, Outcome.CANCELLED)
    result = stream.result()
    assert (result.outcome, result.error, result.duration_s) == (Outcome.FAILED, "x", 0.75)


def test_a_stream_that_was_never_sent_is_cancelled():
    stream = StreamRecorder(PLAN)
    assert not stream.is_live
    result = stream.result()
    assert result.outcome is Outcome.CANCELLED
    assert result.sent_s is None
    assert result.ttft_s is None


def test_a_complete_stream_without_tokens_is_not_complete():
    stream = recorder()
    stream.end(2.0, Outcome.COMPLETED)
    assert not stream.result().is_complete


def test_the_summary_of_two_streams():
    first = StreamResult(
        **{"index": 0, "outcome": Outcome.COMPLETED, "token_count": 3, "sent_s": 0.5, "ttft_s": 0.5},
        **{"token_times_s": [1.0, 2.0, 3.0], "stall_s": 1.5, "stall_count": 2, "least_runway_s": 0.0},
    )
    second = StreamResult(
        **{"index": 1, "outcome": Outcome.CUT, "token_count": 2, "sent_s": 1.0, "ttft_s": 1.5, "dispatch_lag_s": 0.1},
        **{"token_times_s": [2.5, 4.5], "least_runway_s": 2.0},
    )
    summary = summarise([first, second])
    assert (summary.stream_count, summary.complete_count, summary.token_count) == (2, 1, 5)
    assert summary.makespan_s == 4.0
    assert summary.raw_tok_s == 1.25
    assert summary.ttft_s is not None
    assert summary.ttft_s.mean == 1.0
    assert summary.ttft_s.p50 == 1.0
    assert summary.ttft_s.p99 == pytest.approx(1.49)
    assert summary.ttft_s.max == 1.5
    assert (summary.stall_s_total, summary.stall_count, summary.stalled_stream_count) == (1.5, 2, 1)
    assert summary.least_runway_s == 0.0
    assert summary.max_dispatch_lag_s == 0.1


def test_the_summary_of_nothing():
    summary = summarise([])
    assert summary.raw_tok_s is None
    assert summary.ttft_s is None
    assert summary.least_runway_s is None
    assert distribution([]) is None
