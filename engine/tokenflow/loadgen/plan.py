"""What will be sent: a workload and a seed make a list of planned streams, always the same one."""

import random
from typing import Any

import msgspec

from tokenflow.errors import UsageError
from tokenflow.loadgen.arrivals import parse_arrivals
from tokenflow.loadgen.prompts import draw_prompts
from tokenflow.loadgen.rates import parse_rates


class Workload(msgspec.Struct, kw_only=True, frozen=True):
    """What to send. `arrivals` and `rates` are in the notation of tfctl; output lengths are drawn evenly."""

    request_count: int
    arrivals: str
    rates: str
    min_output_tokens: int
    max_output_tokens: int
    seed: int


class StreamPlan(msgspec.Struct, kw_only=True, frozen=True):
    """One stream to be sent. `arrival_s` counts from the start of the run; a rate of None has no reader."""

    index: int
    arrival_s: float
    prompt: str
    rate_tok_s: float | None
    max_tokens: int
    extra_body: dict[str, Any] = msgspec.field(default_factory=dict)  # goes into this request as it is


def plan_streams(workload: Workload) -> list[StreamPlan]:
    """The streams of a workload in order of arrival. Raises UsageError where the workload makes no sense."""
    if workload.request_count < 1:
        raise UsageError(f"{workload.request_count} requests are too few", hint="ask for one or more", field="requests")
    if not 1 <= workload.min_output_tokens <= workload.max_output_tokens:
        raise UsageError(
            f"output lengths from {workload.min_output_tokens} to {workload.max_output_tokens} tokens make no sense",
            hint="give a least and a greatest length, for example 64-128",
            field="max-tokens",
        )
    # One generator a subject: a change of the rates must not move the arrivals or the prompts.
    count = workload.request_count
    times_s = parse_arrivals(workload.arrivals).times_s(count, _generator(workload.seed, "arrivals"))
    rates_tok_s = parse_rates(workload.rates).assign(count, _generator(workload.seed, "rates"))
    prompts = draw_prompts(count, _generator(workload.seed, "prompts"))
    lengths_rng = _generator(workload.seed, "lengths")
    return [
        StreamPlan(
            index=index,
            arrival_s=times_s[index],
            prompt=prompts[index],
            rate_tok_s=rates_tok_s[index],
            max_tokens=lengths_rng.randint(workload.min_output_tokens, workload.max_output_tokens),
        )
        for index in range(count)
    ]


def _generator(seed: int, subject: str) -> random.Random:
    """Seeding with text is hashed by SHA-512, so that it is the same in every process."""
    return random.Random(f"{seed}:{subject}")
