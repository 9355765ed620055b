"""Streams on the real engine: what a reader gets, what `tfctl ps` says about it, how bad rates are answered."""

import asyncio
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tokenflow.loadgen.burst import BackgroundBurst
from tokenflow.loadgen.endpoint import Api, Endpoint
from tokenflow.loadgen.plan import StreamPlan, Workload, plan_streams
from tokenflow.loadgen.result import StreamResult
from tokenflow.loadgen.run import LoadRun

HEADER = "X-TokenFlow-Request-Id"
MESSAGES = [{"role": "user", "content": "Tell me about the sea."}]
WHOLE_LENGTH = {"ignore_eos": True}  # the engine's own option: exactly max_tokens, so that figures can be exact


@pytest.fixture
def client(engine):
    with openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0, timeout=120.0) as made:
        yield made


class Watched:
    """One stream beside the test, which looks at it from outside; ended with the block at the latest."""

    def __init__(self, engine, plan: StreamPlan) -> None:
        self._run = LoadRun(endpoint(engine), [plan])
        [self._recorder] = self._run.recorders

    def __enter__(self) -> "Watched":
        self._burst = BackgroundBurst(self._run, print)
        return self

    def __exit__(self, *_: object) -> None:
        self._burst.cancel()
        self._burst.wait()

    def rid_after_first_token(self) -> str:
        deadline_s = time.monotonic() + 60.0
        while self._recorder.token_count == 0:
            assert self._recorder.outcome is None, self._run.result()
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert self._recorder.rid is not None
        return self._recorder.rid

    @property
    def is_live(self) -> bool:
        return self._recorder.is_live

    def result(self) -> StreamResult:
        """At the stream's own end."""
        [stream] = self._burst.wait().streams
        assert stream.is_complete, stream
        return stream


def endpoint(engine, api: Api = Api.CHAT) -> Endpoint:
    return Endpoint(url=engine.url, model=engine.model, api=api, extra_body=WHOLE_LENGTH)


def one_stream(rate_tok_s: float | None, max_tokens: int) -> StreamPlan:
    return StreamPlan(
        index=0, arrival_s=0.0, prompt="Tell me about the sea.", rate_tok_s=rate_tok_s, max_tokens=max_tokens
    )


@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.name.lower())
async def test_a_burst_of_paced_streams(engine, api):
    workload = Workload(request_count=10, arrivals="burst:10", rates="3,6,12", output_tokens="uniform:16:40", seed=5)
    plans = plan_streams(workload)
    result = await LoadRun(endpoint(engine, api), plans).execute()

    assert [stream.error for stream in result.streams] == [None] * 10
    assert all(stream.is_complete for stream in result.streams)
    assert [stream.token_count for stream in result.streams] == [plan.max_tokens for plan in plans]
    assert len({stream.rid for stream in result.streams}) == 10
    for stream, plan in zip(result.streams, plans, strict=True):
        assert stream.rid is not None
        row = await asyncio.to_thread(engine.row_when, stream.rid, lambda row: row["state"] == "finished")
        assert row["generated_tokens"] == stream.token_count
        assert row["delivered_tokens"] == stream.token_count
        assert row["prompt_tokens"] == stream.prompt_tokens
        assert row["rate_tok_s"] == plan.rate_tok_s
        assert row["rate_source"] == "header"
        assert row["class"] == "reading"
        # The daemon counts from the request's arrival at the server, the client from before it was sent.
        assert 0.0 < row["ttft_s"] <= stream.ttft_s + 0.05


def test_the_runway_of_a_stream_while_it_runs(engine):
    with Watched(engine, one_stream(2.0, 3000)) as stream:
        rid = stream.rid_after_first_token()
        engine.row_when(rid, lambda row: row["delivered_tokens"] > 0)
        rows = []
        for _ in range(3):
            rows.append(engine.rows()[rid])
            time.sleep(1.0)
        assert stream.is_live, "the stream ended before it could be watched: these figures would be those of its end"

    for row in rows:
        assert row["state"] == "running"
        assert row["rate_tok_s"] == 2.0
        assert abs(row["unread_tokens"] - (row["generated_tokens"] - row["consumed_tokens"])) <= 1
        # unread_tokens is rounded down, runway_s comes from the unrounded figure
        assert 0.0 <= row["runway_s"] * 2.0 - row["unread_tokens"] < 1.0 + 1e-6
        assert row["consumed_tokens"] <= row["delivered_tokens"] <= row["generated_tokens"]
    for earlier, later in itertools.pairwise(rows):
        elapsed_s = later["age_s"] - earlier["age_s"]
        assert elapsed_s > 0.5
        assert later["generated_tokens"] > earlier["generated_tokens"]
        stalled_s = later["stall_s"] - earlier["stall_s"]  # on a machine so slow that its reader waits for it
        assert later["consumed_tokens"] - earlier["consumed_tokens"] == pytest.approx(
            2.0 * (elapsed_s - stalled_s), abs=1.1
        )  # whole tokens


def test_a_reader_goes_on_reading_after_the_last_token(engine):
    """The stream is over, its reader is not: what is unread shrinks at the reader's rate, and nothing stalls."""
    with Watched(engine, one_stream(10.0, 60)) as watched:
        rid = watched.result().rid
    row = engine.row_when(rid, lambda row: row["state"] == "finished")
    stall_s = row["stall_s"]
    row = engine.row_when(rid, lambda row: row["runway_s"] == 0.0)
    assert row["unread_tokens"] == 0
    assert row["consumed_tokens"] == 60
    assert row["stall_s"] == stall_s


def test_a_reader_faster_than_the_engine_stalls_on_both_sides(engine):
    with Watched(engine, one_stream(1000.0, 30)) as watched:
        stream = watched.result()
    row = engine.row_when(stream.rid, lambda row: row["state"] == "finished")
    assert stream.stall_count > 0
    assert row["stall_count"] > 0
    # Two clocks at two ends of the same stream: they see the same gaps but for what the way adds.
    assert row["stall_s"] == pytest.approx(stream.stall_s, rel=0.2, abs=0.2)


def test_the_openai_client_four_at_once(engine, client):
    completion = {"model": engine.model, "prompt": "The sea is", "max_tokens": 24, "temperature": 0.0}
    chat = {"model": engine.model, "messages": MESSAGES, "max_tokens": 24, "temperature": 0.0}
    usage = {"stream_options": {"include_usage": True}}

    def chat_streamed() -> tuple[str, int]:
        chunks = list(client.chat.completions.create(**chat, **usage, stream=True, extra_body=WHOLE_LENGTH))
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        return text, chunks[-1].usage.completion_tokens

    def chat_whole() -> tuple[str, int]:
        answer = client.chat.completions.create(**chat, extra_body=WHOLE_LENGTH)
        return answer.choices[0].message.content, answer.usage.completion_tokens

    def completion_streamed() -> tuple[str, int]:
        chunks = list(client.completions.create(**completion, **usage, stream=True, extra_body=WHOLE_LENGTH))
        text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
        return text, chunks[-1].usage.completion_tokens

    def completion_whole() -> tuple[str, int]:
        answer = client.completions.create(**completion, extra_body=WHOLE_LENGTH)
        return answer.choices[0].text, answer.usage.completion_tokens

    calls = (chat_streamed, chat_whole, completion_streamed, completion_whole)
    gate = threading.Barrier(len(calls))

    def at_once(call):
        gate.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        answers = list(pool.map(at_once, calls))
    for text, token_count in answers:
        assert len(text.split()) > 5
        assert token_count == 24
    assert [model.id for model in client.models.list()] == [engine.model]


def test_the_request_id_of_the_response_is_the_one_of_ps(engine, client):
    raw = client.chat.completions.with_raw_response.create(
        model=engine.model, messages=MESSAGES, max_tokens=8, stream=True, extra_headers={"X-TokenFlow-Rate": "7.5"}
    )
    rid = raw.headers[HEADER]
    chunks = list(raw.parse())
    assert raw.headers["cache-control"] == "no-cache"
    assert raw.headers["x-accel-buffering"] == "no"
    assert {chunk.id for chunk in chunks} == {rid}
    row = engine.row_when(rid, lambda row: row["state"] == "finished")
    assert row["rate_tok_s"] == 7.5


def test_nobody_reads_along_without_stream(engine, client):
    raw = client.completions.with_raw_response.create(model=engine.model, prompt="The sea is", max_tokens=8)
    row = engine.row_when(raw.headers[HEADER], lambda row: row["state"] == "finished")
    assert row["class"] == "batch"
    assert row["rate_tok_s"] is None
    assert row["unread_tokens"] is None
    assert row["runway_s"] is None


def test_a_class_and_the_default(engine, client):
    def row_of(**headers: str):
        raw = client.completions.with_raw_response.create(
            model=engine.model, prompt="The sea is", max_tokens=4, stream=True, extra_headers=headers
        )
        list(raw.parse())
        return engine.row_when(raw.headers[HEADER], lambda row: row["state"] == "finished")

    assert (row_of()["class"], row_of()["rate_source"]) == ("reading", "default")
    listening = row_of(**{"X-TokenFlow-Class": "listening"})
    assert (listening["class"], listening["rate_source"]) == ("listening", "class")
    assert listening["rate_tok_s"] != row_of()["rate_tok_s"]


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "text", "", "1e9", "0.09"])
@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_bad_rate_is_refused_in_openais_shape(engine, client, rate, is_streamed):
    before = set(engine.rows("--all"))
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model=engine.model,
            messages=MESSAGES,
            max_tokens=4,
            stream=is_streamed,
            extra_headers={"X-TokenFlow-Rate": rate},
        )
    error = caught.value
    assert error.status_code == 400
    assert error.type == "invalid_request_error"
    assert error.param == "X-TokenFlow-Rate"
    assert error.code == "invalid_value"
    assert "0.1 to 10000" in error.body["message"]
    assert set(engine.rows("--all")) <= before, "none of them became a request; old ones may have been forgotten"


@pytest.mark.parametrize("rate", ["0.1", "10000"])
def test_the_ends_of_the_range_are_good_rates(engine, client, rate):
    raw = client.completions.with_raw_response.create(
        model=engine.model, prompt="The sea is", max_tokens=2, stream=True, extra_headers={"X-TokenFlow-Rate": rate}
    )
    list(raw.parse())
    assert engine.row_when(raw.headers[HEADER], lambda row: True)["rate_tok_s"] == float(rate)


def test_an_unknown_class_is_refused(engine, client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(
            model=engine.model, prompt="x", max_tokens=2, extra_headers={"X-TokenFlow-Class": "nobody"}
        )
    assert caught.value.param == "X-TokenFlow-Class"


def test_what_sglang_refuses_keeps_its_own_answer(engine, client):
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(model=engine.model, messages=[], max_tokens=2)
    assert 400 <= caught.value.status_code < 500


def test_a_client_that_leaves_is_seen(engine, client):
    """A stream whose client hangs up ends in `aborted`, and the engine goes on."""
    raw = client.completions.with_raw_response.create(
        model=engine.model, prompt="The sea is", max_tokens=400, stream=True, extra_body=WHOLE_LENGTH
    )
    stream = raw.parse()
    next(iter(stream))
    stream.close()
    row = engine.row_when(raw.headers[HEADER], lambda row: row["state"] == "aborted")
    assert row["generated_tokens"] < 400
