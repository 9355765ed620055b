"""What the simulated engine is asked: the load generator's laws, without prompts.

One seed means the same arrivals, rates and output lengths as in `tfctl bench`, whichever policy is asked.
"""

from pathlib import Path

import msgspec

from tokenflow.errors import UsageError
from tokenflow.loadgen.arrivals import Arrivals, parse_arrivals
from tokenflow.loadgen.draws import draw_lengths, generator
from tokenflow.loadgen.rates import parse_rates
from tokenflow.loadgen.traces.read import read_trace
from tokenflow.loadgen.traces.trace import TraceRequest
from tokenflow.sim.workload import SimRequest

_OTHER_TRACE = "trace:"  # as a length law: lengths drawn from a trace other than that of the arrivals


class WorkloadSpec(msgspec.Struct, kw_only=True, frozen=True):
    """A workload in the notation of tfctl; `request_count` None takes all that the arrivals hold by themselves.

    Length laws: those of `tokenflow.loadgen.lengths`; `trace`, the lengths that the arrivals' trace recorded; and
    `trace:FILE`, the lengths of rows drawn from that file (input and output from the same rows, if it is the same
    file). `rates` None: nobody reads along. `speedup` divides a trace's arrival times.
    """

    arrivals: str
    input_tokens: str
    output_tokens: str
    request_count: int | None = None
    rates: str | None = None
    speedup: float = 1.0
    max_tokens: int | None = None  # that clients ask for, and all that a scheduler knows; None: the true length


def make_requests(spec: WorkloadSpec, seed: int) -> list[SimRequest]:
    """The requests in order of arrival. Raises UsageError where the workload makes no sense, ConfigurationError for a
    trace file that does not."""
    arrivals = parse_arrivals(spec.arrivals, speedup=spec.speedup)
    count = spec.request_count if spec.request_count is not None else arrivals.usual_count
    if count is None:
        raise UsageError(f"{spec.arrivals} has no end", hint="give a number of requests", field="requests")
    if count < 1:
        raise UsageError(f"{count} requests are too few", hint="ask for one or more", field="requests")
    times_s = arrivals.times_s(count, generator(seed, "arrivals"))
    rates_tok_s: list[float] | list[None] = [None] * count
    if spec.rates is not None:
        rates_tok_s = parse_rates(spec.rates).assign(count, generator(seed, "rates"))
    inputs = _lengths(spec.input_tokens, "input-tokens", "input-lengths", arrivals, count, seed)
    outputs = _lengths(spec.output_tokens, "output-tokens", "lengths", arrivals, count, seed)
    told = [None if spec.max_tokens is None else max(spec.max_tokens, tokens) for tokens in outputs]
    return [
        SimRequest(arrival_s, prompt, output, rate_tok_s, max_tokens=most)
        for arrival_s, prompt, output, rate_tok_s, most in zip(times_s, inputs, outputs, rates_tok_s, told, strict=True)
    ]


def _lengths(law: str, field: str, subject: str, arrivals: Arrivals, count: int, seed: int) -> list[int]:
    if not law.startswith(_OTHER_TRACE):
        return draw_lengths(law, field, arrivals, count, generator(seed, subject))
    path = Path(law.removeprefix(_OTHER_TRACE))
    # Named by the file and not by the field: input and output of one file come from the same rows.
    rows: list[TraceRequest] = generator(seed, f"rows of {path}").choices(read_trace(path).requests, k=count)
    return [row.input_tokens if field == "input-tokens" else row.output_tokens for row in rows]
