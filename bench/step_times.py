"""Step times of a real engine from its streams' token times: what the simulator is calibrated with.

Unlike `tfctl profile measure`, which looks for what an engine can do and leaves out what held it up (the fastest
prefill, the median rate), this takes means: it is held against runs that were held up as well.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.run import LoadRun
from tokenflow.measure.plane import fit_plane
from tokenflow.measure.streams import stream_plan

_DECODE_POINTS = ((1, 48), (4, 48), (8, 48), (8, 160))  # streams, prompt tokens
_DECODE_TOKENS = 40  # of each stream
_CHUNK_TOKENS = 512  # of the engine that is measured
_PREFILL_TOKENS = (16, 64, 128, 256, 512)  # whole prompts fill a chunk exactly
_PREFILL_COUNT = 8  # prompts at once
_SAME_STEP_S = 0.025  # tokens that come closer together than this are of one step; one on a CPU takes longer


@dataclass(frozen=True, slots=True)
class PrefillStep:
    """One step that computed whole prompts."""

    prompt_count: int
    new_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StepTimes:
    """decode: fixed + stream · B + kv_token · S; prefill: fixed + prompt · P + token · N. Seconds."""

    decode_fixed_s: float
    stream_s: float
    kv_token_s: float
    decode_error_ratio: float
    prefill_fixed_s: float
    prompt_s: float
    token_s: float
    prefill_error_ratio: float

    def decode_s(self, streams: int, context_tokens: float) -> float:
        """A step of so many streams with this mean context."""
        return self.decode_fixed_s + streams * (self.stream_s + self.kv_token_s * context_tokens)

    def __str__(self) -> str:
        return (
            f"decode {self.decode_fixed_s * 1e3:.1f} + {self.stream_s * 1e3:.2f} B + {self.kv_token_s * 1e3:.5f} S ms "
            f"(error {self.decode_error_ratio:.1%}), prefill {self.prefill_fixed_s * 1e3:.1f} + "
            f"{self.prompt_s * 1e3:.2f} P + {self.token_s * 1e3:.3f} N ms (error {self.prefill_error_ratio:.1%})"
        )


def mean_of(before: StepTimes, after: StepTimes) -> StepTimes:
    """Of two measurements: what holds between them, on a machine that others use as well."""
    names = StepTimes.__dataclass_fields__
    return StepTimes(**{name: (getattr(before, name) + getattr(after, name)) / 2 for name in names})


async def measure_step_times(endpoint: Endpoint, rng: random.Random) -> StepTimes:
    """On an idle engine. Prompts are drawn, none begins as another does."""
    await _times_of(endpoint, 1, 16, 2, rng)  # the first request of all is slower
    decode = [
        decode_step(await _times_of(endpoint, streams, prompt, _DECODE_TOKENS, rng), prompt)
        for streams, prompt in _DECODE_POINTS
    ]
    prefill = [
        step
        for tokens in _PREFILL_TOKENS
        for step in prefill_steps(await _times_of(endpoint, _PREFILL_COUNT, tokens, 1, rng), tokens)
    ]
    steps, steps_error = fit_plane([[1.0, streams, kv] for streams, kv, _ in decode], [one_s for _, _, one_s in decode])
    prompts, prompts_error = fit_plane(
        [[1.0, step.prompt_count, step.new_tokens] for step in prefill], [step.seconds for step in prefill]
    )
    return StepTimes(*steps, steps_error, *prompts, prompts_error)


def decode_step(times_s: Sequence[Sequence[float]], prompt_tokens: int) -> tuple[int, float, float]:
    """Streams, sum of their contexts and mean seconds of the steps from the last one's first token to the first end."""
    begin_s, end_s = max(times[0] for times in times_s), min(times[-1] for times in times_s)
    steps = sum(begin_s < moment <= end_s for moment in times_s[0])
    assert steps > 0, "the streams did not run at the same time"
    middle_s = (begin_s + end_s) / 2
    contexts = [prompt_tokens + sum(moment <= middle_s for moment in times) for times in times_s]
    return len(times_s), float(sum(contexts)), (end_s - begin_s) / steps


def prefill_steps(times_s: Sequence[Sequence[float]], prompt_tokens: int) -> list[PrefillStep]:
    """From the first tokens of prompts that were sent at once: those of one step come together, and the time since
    the step before is what it took. The first step is left out: the way there and the tokenizing are in it."""
    moments = sorted(times[0] for times in times_s)
    groups: list[list[float]] = []
    for moment in moments:
        if groups and moment - groups[-1][-1] < _SAME_STEP_S:
            groups[-1].append(moment)
        else:
            groups.append([moment])
    return [
        PrefillStep(len(after), len(after) * prompt_tokens, after[0] - before[0])
        for before, after in itertools.pairwise(groups)
        if len(after) * prompt_tokens <= _CHUNK_TOKENS  # more than a step takes: two that came together
    ]


async def _times_of(
    endpoint: Endpoint, streams: int, prompt_tokens: int, max_tokens: int, rng: random.Random
) -> list[list[float]]:
    """When each stream's tokens came."""
    plans = [stream_plan(index, prompt_tokens, max_tokens, rng) for index in range(streams)]
    result = await LoadRun(endpoint, plans).execute()
    errors = [stream.error for stream in result.streams if not stream.is_complete]
    assert not errors, errors
    return [list(stream.token_times_s) for stream in result.streams]
