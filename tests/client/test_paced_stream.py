"""A stream at a reader's pace, against a server that acks, one that does not, one that refuses and one that breaks."""

import subprocess
import sys
import time

import pytest
from openai_stand_in import StandIn

from tokenflow.client.paced_stream import PacedStream
from tokenflow.errors import OperationError, ServerUnreachableError, UsageError

WORDS = [f"w{number} " for number in range(1, 21)]


def body(max_tokens: int = 20) -> dict:
    return {"model": "toy", "messages": [{"role": "user", "content": "x"}], "max_tokens": max_tokens}


def test_text_comes_at_the_readers_pace_and_is_acked():
    with StandIn(token_s=0.1, has_acks=True) as server:
        began_s = time.monotonic()
        with PacedStream(server.url, body(), rate_tok_s=40.0, class_name="reading", ack_interval_s=0.05) as stream:
            assert list(stream) == WORDS
            assert stream.consumed_tokens == 20
            assert stream.rid == "tf-1"
            assert stream.can_ack
        assert time.monotonic() - began_s >= 20 / 40.0
    [acks] = server.acks.values()
    consumed = [ack["consumed_tokens"] for ack in acks]
    assert consumed == sorted(set(consumed))
    assert 0 < consumed[-1] <= 20
    assert server.headers[0]["X-TokenFlow-Rate"] == "40"
    assert server.headers[0]["X-TokenFlow-Class"] == "reading"
    assert server.bodies[0]["stream"] is True


def test_a_slow_reader_does_not_slow_the_connection():
    with StandIn(token_s=0.001) as server, PacedStream(server.url, body(), rate_tok_s=1.0) as stream:
        assert next(iter(stream)) == "w1 "
        assert stream._http.is_over.wait(30)  # all of it is here while the first word is read
        assert stream.consumed_tokens == 0
        assert not stream.can_ack


def test_a_reader_that_stands_still_says_so():
    with (
        StandIn(token_s=0.05, has_acks=True) as server,
        PacedStream(server.url, body(1000), rate_tok_s=40.0, ack_interval_s=0.05) as stream,
    ):
        pieces = iter(stream)
        for _ in range(5):
            next(pieces)
        until_s = time.monotonic() + 30
        said: list[int] = []
        while said[-2:] != [stream.consumed_tokens] * 2:
            assert time.monotonic() < until_s, "it went silent"
            time.sleep(0.05)
            said = [ack["consumed_tokens"] for acks in list(server.acks.values()) for ack in acks]
    assert said[-1] > 0


def test_a_new_rate_is_told_with_an_ack():
    with (
        StandIn(token_s=0.05, has_acks=True) as server,
        PacedStream(server.url, body(), rate_tok_s=100.0, ack_interval_s=0.05) as stream,
    ):
        for text in stream:
            if text == "w3 ":
                stream.rate_tok_s = 50.0
    [acks] = server.acks.values()
    assert [ack["rate"] for ack in acks if "rate" in ack] == [50.0]


def test_leaving_early_ends_the_request():
    with StandIn(token_s=0.01) as server:
        with PacedStream(server.url, body(100_000), rate_tok_s=1000.0) as stream:
            assert next(iter(stream)) == "w1 "
        until_s = time.monotonic() + 30
        while server.gone_count == 0 and time.monotonic() < until_s:
            time.sleep(0.01)
        assert server.gone_count == 1


def test_a_refusal_is_told_in_the_servers_words():
    with (
        StandIn(fail_every=1) as server,
        pytest.raises(OperationError, match="HTTP 503: admission is closed") as caught,
        PacedStream(server.url, body(), rate_tok_s=6.0),
    ):
        pass
    assert caught.value.hint


def test_a_server_that_goes_away_breaks_the_stream():
    with StandIn(token_s=0.001, stops_after=3) as server:
        stream = PacedStream(server.url, body(), rate_tok_s=1000.0)
        stream.__enter__()
        pieces = iter(stream)
        assert [next(pieces) for _ in range(3)] == WORDS[:3]
    with pytest.raises(OperationError):
        list(pieces)
    stream.close()
    stream.close()


def test_a_silent_server_is_given_up():
    with (
        StandIn(token_s=0.001, stops_after=1) as server,
        PacedStream(server.url, body(), rate_tok_s=1000.0, idle_timeout_s=0.3) as stream,
        pytest.raises(OperationError, match="the connection broke"),
    ):
        list(stream)


def test_nobody_listens():
    with StandIn() as server:
        url = server.url
    with pytest.raises(ServerUnreachableError), PacedStream(url, body(), rate_tok_s=6.0):
        pass
    with pytest.raises(UsageError):
        PacedStream("localhost:1", body(), rate_tok_s=6.0)


def test_it_needs_no_http_package():
    code = (
        "import sys; from tokenflow.client.paced_stream import PacedStream\n"
        "print([m for m in ('aiohttp', 'httpx', 'numpy', 'asyncio', 'zmq') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
