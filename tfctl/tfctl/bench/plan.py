"""What the options of `tfctl bench` come to: the streams of each seed, and the facts for the record."""

from dataclasses import dataclass

import msgspec

from tfctl.bench.options import BenchOptions
from tokenflow.loadgen.arrivals import Arrivals, Burst, GammaProcess, Recorded, parse_arrivals
from tokenflow.loadgen.bench_figures import RunFacts
from tokenflow.loadgen.draws import FROM_TRACE
from tokenflow.loadgen.endpoint import Api
from tokenflow.loadgen.lengths import parse_lengths
from tokenflow.loadgen.plan import StreamPlan, Workload, plan_streams
from tokenflow.loadgen.prompt_file import read_prompts
from tokenflow.loadgen.slo import parse_slos

_USUAL_REQUESTS = 16
_USUAL_OUTPUT = "uniform:64:128"


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """`streams` by seed. `facts` lack what only the run tells: the model, the seed, how it ended."""

    streams: dict[int, list[StreamPlan]]
    facts: RunFacts


def bench_plan(options: BenchOptions) -> BenchPlan:
    """Raises UsageError and ConfigurationError: everything is checked before anything is sent."""
    slos_ms = None if options.goodput is None else parse_slos(options.goodput)
    text = options.arrivals or f"burst:{options.request_count or _USUAL_REQUESTS}"
    arrivals = parse_arrivals(text, speedup=options.speedup)
    is_traced = isinstance(arrivals, Recorded)
    input_tokens = options.input_tokens
    if input_tokens is None and is_traced and options.prompts is None:
        input_tokens = FROM_TRACE
    workload = Workload(
        request_count=options.request_count or arrivals.usual_count or _USUAL_REQUESTS,
        arrivals=text,
        rates=options.rates,
        output_tokens=options.output_tokens or (FROM_TRACE if is_traced else _USUAL_OUTPUT),
        seed=0,
        input_tokens=input_tokens,
        prompts=None if options.prompts is None else read_prompts(options.prompts),
        speedup=options.speedup,
    )
    streams = {seed: plan_streams(msgspec.structs.replace(workload, seed=seed)) for seed in options.seeds}
    rate, burstiness = _rate(arrivals)
    facts = RunFacts(
        model=options.model or "",
        seed=0,
        arrivals=text,
        rates=options.rates,
        backend="openai-chat" if options.api is Api.CHAT else "openai",
        dataset_name=_dataset(workload, arrivals),
        request_rate=rate,
        burstiness=burstiness,
        request_count=workload.request_count,
        mean_input_tokens=_mean(workload.input_tokens, "input-tokens"),
        mean_output_tokens=_mean(workload.output_tokens, "output-tokens"),
        tag=options.tag,
        slos_ms=slos_ms,
    )
    return BenchPlan(streams, facts)


def _dataset(workload: Workload, arrivals: Arrivals) -> str:
    """Where the prompts are from, in the words of `bench_serving` where it has one."""
    if workload.prompts is not None:
        return "custom"
    if workload.input_tokens == FROM_TRACE:
        assert isinstance(arrivals, Recorded)
        return arrivals.trace.format.value
    return "builtin" if workload.input_tokens is None else "random"


def _rate(arrivals: Arrivals) -> tuple[float | str, float | None]:
    """The request rate and vLLM's burstiness, which is the shape of the gamma law."""
    match arrivals:
        case GammaProcess(rate_per_s=rate_per_s, shape=shape):
            return rate_per_s, shape
        case Burst(size=size, gap_s=gap_s):
            return "inf" if gap_s is None else size / gap_s, None
        case _:
            return "trace", None


def _mean(law: str | None, field: str) -> int | None:
    return None if law is None or law == FROM_TRACE else round(parse_lengths(law, field).mean_tokens)
