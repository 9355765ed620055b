"""Streams of made-up tokens with exact lengths, as a client sends them."""

import asyncio
import itertools
import random
import statistics
from bisect import bisect_right
from dataclasses import dataclass

from tokenflow.errors import OperationError
from tokenflow.loadgen.endpoint import Api, Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.run import LoadRun
from tokenflow.measure.points import DecodePoint

_TOKEN_IDS = range(1000, 30_000)  # in every vocabulary, and none of them special
_LOOK_S = 0.02
_START_LIMIT_S = 300.0
_LEAST_MOMENTS = 4  # at which tokens came, in each part of a window
_PARTS = 5
_MOST_WINDOWS = 10  # of the time for one figure, on a machine that is too slow for it


@dataclass(frozen=True, slots=True)
class DecodeSample:
    """What so many streams made while nothing prefilled. `context_tokens`: the mean of one stream."""

    streams: int
    context_tokens: int
    tok_s: float

    @property
    def step_s(self) -> float:
        return self.streams / self.tok_s


@dataclass(frozen=True, slots=True)
class PrefillSample:
    """From a request sent to its first token, on an idle engine: the fastest of a few."""

    new_tokens: int
    seconds: float


def endpoint_of(url: str, model: str, api_key: str | None = None) -> Endpoint:
    return Endpoint(url=url, model=model, api=Api.COMPLETIONS, api_key=api_key, extra_body={"ignore_eos": True})


def stream_plan(index: int, prompt_tokens: int, max_tokens: int, rng: random.Random) -> StreamPlan:
    """No two share a beginning: nothing of a prompt is found in a cache."""
    prompt = rng.choices(_TOKEN_IDS, k=prompt_tokens)
    return StreamPlan(
        index=index,
        arrival_s=0.0,
        prompt="",
        rate_tok_s=None,
        max_tokens=max_tokens,
        extra_body={"prompt": prompt, "ignore_eos": True},
    )


async def measure_decode(endpoint: Endpoint, point: DecodePoint, window_s: float, rng: random.Random) -> DecodeSample:
    """Counts tokens from the moment in which all streams run until `window_s` later, or until the first one ends; for
    longer where hardly anything came in that time.

    Raises OperationError where streams fail.
    """
    plans = [stream_plan(index, point.prompt_tokens, point.room_tokens, rng) for index in range(point.streams)]
    run = LoadRun(endpoint, plans)
    task = asyncio.create_task(run.execute())
    try:
        begin_s = await _all_run(run, task)
        await _window(run, begin_s, window_s)
    finally:
        run.cancel()
        await task
    times_s = [recorder.result().token_times_s for recorder in run.recorders]
    return decode_sample(point, times_s, begin_s)


async def _window(run: LoadRun, begin_s: float, window_s: float) -> None:
    """Over after `window_s` and enough steps, or when the first stream ends; a slow machine gets more time."""
    begun = [recorder.token_count for recorder in run.recorders]
    while all(recorder.is_live for recorder in run.recorders) and run.elapsed_s() < begin_s + _MOST_WINDOWS * window_s:
        made = min(recorder.token_count - count for recorder, count in zip(run.recorders, begun, strict=True))
        if made >= _PARTS * _LEAST_MOMENTS and run.elapsed_s() >= begin_s + window_s:
            return
        await asyncio.sleep(_LOOK_S)


async def _all_run(run: LoadRun, task: "asyncio.Task[object]") -> float:
    """The run's time at which each stream has its second token: no prompt waits any more."""
    while any(recorder.token_count < 2 for recorder in run.recorders):
        ended = [recorder for recorder in run.recorders if recorder.outcome is not None]
        if ended or task.done() or run.elapsed_s() > _START_LIMIT_S:
            why = ended[0].result().error if ended else f"not all of them ran within {_START_LIMIT_S:g} s"
            raise OperationError(f"streams that were to be measured failed: {why}", hint="tfctl logs -n 50")
        await asyncio.sleep(_LOOK_S)
    return run.elapsed_s()


def decode_sample(point: DecodePoint, times_s: list[list[float]], begin_s: float) -> DecodeSample:
    """From the times at which each stream's tokens came, while all of them ran: after `begin_s` until the first end.

    The window is cut into a few parts of whole steps, and the median of their rates is taken: what holds the machine
    up for a moment is no part of what the engine can do. Raises OperationError where too little came.
    """
    end_s = min(times[-1] for times in times_s)
    moments = sorted({moment for times in times_s for moment in times if moment <= end_s})
    edges = [index for index, moment in enumerate(moments) if moment <= begin_s][-1:] or [0]
    parts = min(_PARTS, (len(moments) - 1 - edges[0]) // _LEAST_MOMENTS)
    if parts < 1:
        raise OperationError(
            f"{point.streams} streams of {point.prompt_tokens} tokens made too little to be measured",
            hint="measure with longer windows: tfctl profile measure --window 10",
        )
    cuts = [edges[0] + (len(moments) - 1 - edges[0]) * part // parts for part in range(parts + 1)]
    rates_tok_s = []
    for first, last in itertools.pairwise(moments[cut] for cut in cuts):
        count = sum(bisect_right(times, last) - bisect_right(times, first) for times in times_s)
        rates_tok_s.append(count / (last - first))
    middle_s = (moments[edges[0]] + end_s) / 2
    context = point.prompt_tokens + statistics.fmean(bisect_right(times, middle_s) for times in times_s)
    return DecodeSample(point.streams, round(context), statistics.median(rates_tok_s))


async def measure_prefill(endpoint: Endpoint, prompt_tokens: int, repeats: int, rng: random.Random) -> PrefillSample:
    """Raises OperationError where a request fails."""
    found = []
    for _ in range(repeats):
        result = await LoadRun(endpoint, [stream_plan(0, prompt_tokens, 1, rng)]).execute()
        (stream,) = result.streams
        if stream.ttft_s is None:
            raise OperationError(f"a request that was to be measured failed: {stream.error}", hint="tfctl logs -n 50")
        found.append(stream.ttft_s)
    return PrefillSample(prompt_tokens, min(found))
