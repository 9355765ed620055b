"""Runs against a scripted server: slow, cut, failing, refusing and malformed streams, and the end of a run by hand."""

import asyncio
from collections.abc import Callable

import pytest

from tokenflow.loadgen.endpoint import Api, Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.result import Outcome
from tokenflow.loadgen.run import LoadRun


def plans(*prompts: str, rate_tok_s: float | None = 5.0) -> list[StreamPlan]:
    return [
        StreamPlan(index=index, arrival_s=0.0, prompt=prompt, rate_tok_s=rate_tok_s, max_tokens=4)
        for index, prompt in enumerate(prompts)
    ]


def endpoint(url: str, **options) -> Endpoint:
    return Endpoint(url=url, model="m", **options)


async def test_a_whole_stream(server):
    scripted, url = server
    result = await LoadRun(endpoint(url), plans("whole"), keep_text=True).execute()
    [stream] = result.streams
    assert stream.is_complete
    assert stream.text == "Hello ü"
    assert stream.token_count == 4
    assert len(stream.token_times_s) == 4
    assert stream.rid == "rid-whole"
    assert stream.http_status == 200
    assert stream.prompt_tokens == 2
    assert stream.ttft_s is not None
    assert 0.0 < stream.ttft_s <= stream.duration_s
    assert result.summary.complete_count == 1
    assert scripted.headers[0]["X-TokenFlow-Rate"] == "5"
    assert scripted.bodies[0] == {
        "model": "m",
        "messages": [{"role": "user", "content": "whole"}],
        "max_tokens": 4,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


async def test_the_completions_route_without_a_reader(server):
    scripted, url = server
    target = endpoint(f"{url}/v1/", api=Api.COMPLETIONS, exact_counts=False, api_key="k", extra_body={"temperature": 1})
    result = await LoadRun(target, plans("bytewise", rate_tok_s=None), keep_text=True).execute()
    [stream] = result.streams
    assert stream.outcome is Outcome.COMPLETED
    assert stream.text == "ü€"
    assert stream.token_count == 1
    assert stream.least_runway_s is None
    assert "X-TokenFlow-Rate" not in scripted.headers[0]
    assert scripted.headers[0]["Authorization"] == "Bearer k"
    assert scripted.bodies[0]["prompt"] == "bytewise"
    assert scripted.bodies[0]["temperature"] == 1
    assert scripted.bodies[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("prompt", "outcome", "tokens", "message"),
    [
        ("cut", Outcome.CUT, 1, "the connection broke"),
        ("undone", Outcome.CUT, 1, "without [DONE]"),
        ("failing", Outcome.FAILED, 1, "the engine was stopped"),
        ("malformed", Outcome.MALFORMED, 1, "not a chunk"),
        ("aborted", Outcome.FAILED, 1, "aborted"),
        ("refuse", Outcome.REJECTED, 0, "HTTP 503: admission is closed"),
        ("refuse in text", Outcome.REJECTED, 0, "HTTP 502: bad gateway"),
    ],
)
async def test_streams_that_go_wrong(server, prompt, outcome, tokens, message):
    _, url = server
    result = await LoadRun(endpoint(url), plans(prompt)).execute()
    [stream] = result.streams
    assert (stream.outcome, stream.token_count) == (outcome, tokens)
    assert message in (stream.error or "")
    assert not stream.is_complete
    assert result.summary.complete_count == 0


async def test_a_stream_that_goes_silent_times_out(server):
    _, url = server
    result = await LoadRun(endpoint(url, idle_timeout_s=0.2), plans("held")).execute()
    assert result.streams[0].outcome is Outcome.TIMED_OUT
    assert result.streams[0].token_count == 1


async def test_a_complete_stream_is_not_hung_up_on(server):
    """Closing right after [DONE] would count as a client that left."""
    scripted, url = server
    result = await LoadRun(endpoint(url), plans("lingering")).execute()
    assert result.streams[0].is_complete
    await LoadRun(endpoint(url), plans("whole")).execute()  # the server has had its turn
    assert scripted.cancelled_count == 0


async def test_nobody_listens(serve, server):
    scripted, _ = server
    async with serve(scripted) as url:
        pass
    result = await LoadRun(endpoint(url), plans("whole")).execute()
    assert result.streams[0].outcome is Outcome.UNREACHABLE
    assert result.streams[0].http_status is None


async def test_one_bad_stream_leaves_the_others_alone(server):
    _, url = server
    result = await LoadRun(endpoint(url), plans("whole", "cut", "whole", "refuse")).execute()
    outcomes = [stream.outcome for stream in result.streams]
    assert outcomes == [Outcome.COMPLETED, Outcome.CUT, Outcome.COMPLETED, Outcome.REJECTED]
    assert result.summary.complete_count == 2


async def test_a_burst_is_open_all_at_once(server):
    scripted, url = server
    run = LoadRun(endpoint(url), plans(*["held"] * 150))
    task = asyncio.create_task(run.execute())
    while sum(recorder.token_count for recorder in run.recorders) < 150:  # no pool holds any of them back
        assert not task.done()
        await asyncio.sleep(0.01)
    assert all(recorder.is_live for recorder in run.recorders)
    scripted.go_on.set()
    assert (await task).summary.complete_count == 150


async def test_cancelling_returns_what_was_measured(server):
    scripted, url = server
    later = StreamPlan(index=1, arrival_s=3600.0, prompt="whole", rate_tok_s=5.0, max_tokens=4)
    run = LoadRun(endpoint(url), [*plans("held"), later])
    task = asyncio.create_task(run.execute())
    await wait_for_token(run, task)
    run.cancel()
    result = await task
    assert [stream.outcome for stream in result.streams] == [Outcome.CANCELLED, Outcome.CANCELLED]
    assert [stream.token_count for stream in result.streams] == [1, 0]
    assert result.streams[1].sent_s is None
    await until(lambda: scripted.cancelled_count == 1)


async def test_a_cancelled_task_closes_its_connections_and_keeps_its_measurements(server):
    scripted, url = server
    run = LoadRun(endpoint(url), plans("held"))
    task = asyncio.create_task(run.execute())
    await wait_for_token(run, task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.result().streams[0].outcome is Outcome.CANCELLED
    assert run.result().summary.token_count == 1
    await until(lambda: scripted.cancelled_count == 1)


async def test_streams_are_sent_in_order_of_arrival(server):
    scripted, url = server
    planned = [
        StreamPlan(index=index, arrival_s=arrival_s, prompt="whole", rate_tok_s=rate, max_tokens=4)
        for index, (arrival_s, rate) in enumerate([(0.0, 1.0), (0.05, 2.0), (0.1, 3.0)])
    ]
    result = await LoadRun(endpoint(url), planned).execute()
    assert [headers["X-TokenFlow-Rate"] for headers in scripted.headers] == ["1", "2", "3"]
    for stream, plan in zip(result.streams, planned, strict=True):
        assert stream.sent_s is not None
        assert stream.sent_s >= plan.arrival_s - 0.002  # the loop's clock may tick before its timer is due


async def wait_for_token(run: LoadRun, task: asyncio.Task) -> None:
    while run.recorders[0].token_count == 0:
        assert not task.done()
        await asyncio.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)
