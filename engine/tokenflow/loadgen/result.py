"""What a run measured: one record a stream, and the figures over all of them."""

import itertools
from collections.abc import Sequence
from enum import StrEnum

import msgspec
import numpy as np


class Outcome(StrEnum):
    """How a stream ended."""

    COMPLETED = "completed"
    REJECTED = "rejected"  # an HTTP status other than 200
    FAILED = "failed"  # an error event within the stream
    CUT = "cut"  # the connection ended before the stream was complete
    MALFORMED = "malformed"  # an event that is not what the API promises
    UNREACHABLE = "unreachable"  # no connection
    TIMED_OUT = "timed_out"  # nothing came for too long
    CANCELLED = "cancelled"  # by us


class StreamResult(msgspec.Struct, kw_only=True):
    """One stream as its client saw it. Times are seconds; `arrival_s` (as planned), `sent_s` and `token_times_s` count
    from the run's start."""

    index: int
    outcome: Outcome
    rid: str | None = None
    http_status: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    rate_tok_s: float | None = None
    max_tokens: int = 0
    prompt_tokens: int | None = None
    token_count: int = 0
    arrival_s: float = 0.0
    sent_s: float | None = None  # None: never sent
    dispatch_lag_s: float | None = None  # sent later than planned by this much: the generator's own delay
    ttft_s: float | None = None
    duration_s: float | None = None  # from sending to the end of the stream
    stall_s: float = 0.0
    stall_count: int = 0
    least_runway_s: float | None = None
    ack_count: int = 0  # accepted by the server
    failed_ack_count: int = 0
    acked_tokens: int = 0
    token_times_s: list[float] = msgspec.field(default_factory=list)
    text: str | None = None  # only where it was asked for

    @property
    def is_complete(self) -> bool:
        """True if the stream ended as it should and brought at least one token."""
        return self.outcome is Outcome.COMPLETED and self.token_count > 0

    @property
    def tpot_s(self) -> float | None:
        """Mean time of a token after the first, up to the stream's end; None for fewer than two tokens."""
        if self.token_count < 2 or self.duration_s is None or self.ttft_s is None:
            return None
        return (self.duration_s - self.ttft_s) / (self.token_count - 1)

    @property
    def gaps_s(self) -> list[float]:
        """Between the moments at which tokens came. Tokens that came together make one moment."""
        moments_s = sorted(set(self.token_times_s))
        return [later - earlier for earlier, later in itertools.pairwise(moments_s)]


class Distribution(msgspec.Struct, kw_only=True, frozen=True):
    """Seconds. Percentiles interpolate linearly between observations."""

    mean: float
    p50: float
    p99: float
    max: float


class RunSummary(msgspec.Struct, kw_only=True):
    """The figures over all streams of a run."""

    stream_count: int
    complete_count: int
    token_count: int
    makespan_s: float | None  # from the first request sent to the last token received
    raw_tok_s: float | None  # tokens over the makespan
    ttft_s: Distribution | None
    stall_s_total: float
    stall_count: int
    stalled_stream_count: int
    least_runway_s: float | None
    max_dispatch_lag_s: float | None


class RunResult(msgspec.Struct, kw_only=True):
    """`streams` are in the order of the plan."""

    streams: list[StreamResult]
    summary: RunSummary


def summarise(streams: Sequence[StreamResult]) -> RunSummary:
    """Counts streams that failed with what they had received."""
    starts_s = [stream.sent_s for stream in streams if stream.sent_s is not None]
    ends_s = [stream.token_times_s[-1] for stream in streams if stream.token_times_s]
    makespan_s = max(ends_s) - min(starts_s) if starts_s and ends_s else None
    token_count = sum(stream.token_count for stream in streams)
    return RunSummary(
        stream_count=len(streams),
        complete_count=sum(stream.is_complete for stream in streams),
        token_count=token_count,
        makespan_s=makespan_s,
        raw_tok_s=token_count / makespan_s if makespan_s else None,
        ttft_s=distribution([stream.ttft_s for stream in streams if stream.ttft_s is not None]),
        stall_s_total=sum(stream.stall_s for stream in streams),
        stall_count=sum(stream.stall_count for stream in streams),
        stalled_stream_count=sum(stream.stall_count > 0 for stream in streams),
        least_runway_s=min((s.least_runway_s for s in streams if s.least_runway_s is not None), default=None),
        max_dispatch_lag_s=max((s.dispatch_lag_s for s in streams if s.dispatch_lag_s is not None), default=None),
    )


def distribution(values: Sequence[float]) -> Distribution | None:
    """None where there is nothing to describe."""
    if not values:
        return None
    p50, p99 = np.percentile(values, [50, 99])
    return Distribution(mean=float(np.mean(values)), p50=float(p50), p99=float(p99), max=float(max(values)))
