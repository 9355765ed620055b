"""Streams of made-up tokens with exact lengths, as a client sends them."""

import asyncio
import random
import statistics
from dataclasses import dataclass

from tokenflow.errors import OperationError
from tokenflow.loadgen.endpoint import Api, Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.run import LoadRun
from tokenflow.measure.points import DecodePoint

_TOKEN_IDS = range(1000, 30_000)  # in every vocabulary, and none of them special
_LOOK_S = 0.02
_START_LIMIT_S = 300.0
_LEAST_MOMENTS = 4  # at which tokens came, for a figure


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


def endpoint_of(url: str, model: str) -> Endpoint:
    return Endpoint(url=url, model=model, api=Api.COMPLETIONS, extra_body={"ignore_eos": True})


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
    """Counts tokens from the moment in which all streams run until `window_s` later, or until the first one ends.

    Raises OperationError where streams fail.
    """
    plans = [stream_plan(index, point.prompt_tokens, point.room_tokens, rng) for index in range(point.streams)]
    run = LoadRun(endpoint, plans)
    task = asyncio.create_task(run.execute())
    try:
        begin_s = await _all_run(run, task)
        while run.elapsed_s() < begin_s + window_s and all(recorder.is_live for recorder in run.recorders):
            await asyncio.sleep(_LOOK_S)
    finally:
        run.cancel()
        await task
    times_s = [recorder.result().token_times_s for recorder in run.recorders]
    return _decode_sample(point, times_s, begin_s)


async def _all_run(run: LoadRun, task: "asyncio.Task[object]") -> float:
    """The run's time at which each stream has its second token: no prompt waits any more."""
    while any(recorder.token_count < 2 for recorder in run.recorders):
        ended = [recorder for recorder in run.recorders if recorder.outcome is not None]
        if ended or task.done() or run.elapsed_s() > _START_LIMIT_S:
            why = ended[0].result().error if ended else f"not all of them ran within {_START_LIMIT_S:g} s"
            raise OperationError(f"streams that were to be measured failed: {why}", hint="tfctl logs -n 50")
        await asyncio.sleep(_LOOK_S)
    return run.elapsed_s()


def _decode_sample(point: DecodePoint, times_s: list[list[float]], begin_s: float) -> DecodeSample:
    """Whole steps: from the last arrival before the window to the last one at which all streams still ran."""
    end_s = min(times[-1] for times in times_s)
    moments = sorted({moment for times in times_s for moment in times if moment <= end_s})
    first = max((moment for moment in moments if moment <= begin_s), default=moments[0])
    within = [moment for times in times_s for moment in times if first < moment <= end_s]
    if len(set(within)) < _LEAST_MOMENTS:
        raise OperationError(
            f"{point.streams} streams of {point.prompt_tokens} tokens made too little to be measured",
            hint="measure with longer windows: tfctl profile measure --window 10",
        )
    context = point.prompt_tokens + statistics.fmean(
        sum(moment <= (first + end_s) / 2 for moment in times) for times in times_s
    )
    return DecodeSample(point.streams, round(context), len(within) / (end_s - first))


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
