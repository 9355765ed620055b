"""What will be sent: a workload and a seed make a list of planned streams, always the same one."""

from typing import Any

import msgspec

from tokenflow.errors import UsageError
from tokenflow.loadgen.arrivals import Arrivals, parse_arrivals
from tokenflow.loadgen.draws import draw_lengths, generator
from tokenflow.loadgen.prompt_file import deal
from tokenflow.loadgen.prompts import draw_prompt_of, draw_prompts
from tokenflow.loadgen.rates import parse_rates


class Workload(msgspec.Struct, kw_only=True, frozen=True):
    """What to send. `arrivals`, `rates` and the length laws are in the notation of tfctl.

    `rates` None: nobody reads along. `prompts` are dealt out in random order; without them, prompts are drawn here,
    of about the lengths of `input_tokens` where that is given. `trace` as a length law takes the lengths of the
    arrivals' trace.
    """

    request_count: int
    arrivals: str
    rates: str | None
    output_tokens: str
    seed: int
    input_tokens: str | None = None
    prompts: tuple[str, ...] | None = None
    speedup: float = 1.0


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
    count, seed = workload.request_count, workload.seed
    arrivals = parse_arrivals(workload.arrivals, speedup=workload.speedup)
    times_s = arrivals.times_s(count, generator(seed, "arrivals"))
    rates_tok_s: list[float] | list[None] = [None] * count
    if workload.rates is not None:
        rates_tok_s = parse_rates(workload.rates).assign(count, generator(seed, "rates"))
    prompts = _prompts(workload, arrivals)
    lengths = draw_lengths(workload.output_tokens, "output-tokens", arrivals, count, generator(seed, "lengths"))
    return [
        StreamPlan(
            index=index,
            arrival_s=times_s[index],
            prompt=prompts[index],
            rate_tok_s=rates_tok_s[index],
            max_tokens=lengths[index],
        )
        for index in range(count)
    ]


def _prompts(workload: Workload, arrivals: Arrivals) -> list[str]:
    count, rng = workload.request_count, generator(workload.seed, "prompts")
    if workload.input_tokens is None:
        return draw_prompts(count, rng) if workload.prompts is None else deal(workload.prompts, count, rng)
    if workload.prompts is not None:
        raise UsageError(
            "prompts of your own have their own lengths", hint="leave one of the two out", field="input-tokens"
        )
    sizes_rng = generator(workload.seed, "input-lengths")
    sizes = draw_lengths(workload.input_tokens, "input-tokens", arrivals, count, sizes_rng)
    return [draw_prompt_of(size, rng) for size in sizes]
