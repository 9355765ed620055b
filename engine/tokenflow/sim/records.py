"""What is kept of a run: a few figures a request, counts, and a thinned-out series for the plots."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.buffer import sane_rate
from tokenflow.policy.view import LOADING, PREEMPTED, RUNNING, WAITING
from tokenflow.quality.goodput import GoodputLimits
from tokenflow.quality.record import StreamRecord
from tokenflow.quality.stream_figures import StreamFigures, figures_of
from tokenflow.sim.state import EngineState
from tokenflow.sim.streams import Stream

_MOST_SAMPLES = 600


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that has ended. `asked_tokens` against `figures.token_count` plus its hidden ones says whether it
    got all; an aborted one did not."""

    rid: str
    prompt_tokens: int
    asked_tokens: int
    hidden_tokens: int
    made_tokens: int
    rate_tok_s: float | None
    is_aborted: bool
    pause_count: int
    recompute_count: int
    switch_bytes: float
    figures: StreamFigures


@dataclass(frozen=True, slots=True)
class Sample:
    """The engine at one moment. Runways are of streams with a reader that have begun, None without one."""

    time_s: float
    running_count: int
    waiting_count: int
    paused_count: int
    demand_tok_s: float
    least_runway_s: float | None
    median_runway_s: float | None
    kv_used_tokens: int
    host_used_tokens: int


@dataclass(slots=True)
class Series:
    """Samples at even distances; when there are too many, every second one is dropped and the distance doubled."""

    interval_s: float = 0.25
    samples: list[Sample] = field(default_factory=list)
    next_s: float = 0.0

    def take(self, state: EngineState) -> None:
        """Call at any boundary: it samples when it is time. The readers' columns need not be of this moment."""
        if state.now_s < self.next_s:
            return
        self.samples.append(_sample(state))
        if len(self.samples) > _MOST_SAMPLES:
            self.samples = self.samples[::2]
            self.interval_s *= 2.0
        self.next_s = state.now_s + self.interval_s


class Clerk:
    """Takes the figures of whoever ends, and lets go of its times."""

    def __init__(self, *, ttft_target_s: float, limits: GoodputLimits) -> None:
        self.records: list[RequestRecord] = []
        self.series = Series()
        self.demand_max_tok_s = 0.0
        self._ttft_target_s = ttft_target_s
        self._limits = limits

    def close(self, state: EngineState, stream: Stream, *, is_aborted: bool) -> RequestRecord:
        """The stream has ended; its columns are still there and its times are closed."""
        request, streams = stream.request, state.streams
        times_s: NDArray[np.float64] = stream.times.all_s()[request.hidden_tokens :]
        figures = figures_of(
            StreamRecord(request.arrival_s, times_s, sane_rate(request.rate_tok_s)),
            ttft_target_s=self._ttft_target_s,
            limits=self._limits,
        )
        record = RequestRecord(
            rid=stream.rid,
            prompt_tokens=request.prompt_tokens,
            asked_tokens=request.output_tokens,
            hidden_tokens=request.hidden_tokens,
            made_tokens=streams.value(stream, "made_tokens"),
            rate_tok_s=request.rate_tok_s,
            is_aborted=is_aborted,
            pause_count=streams.value(stream, "pause_count"),
            recompute_count=stream.recompute_count,
            switch_bytes=float(streams.column("switch_bytes")[stream.row]),
            figures=figures,
        )
        self.records.append(record)
        return record

    def note_demand(self, state: EngineState) -> None:
        """Σ of the rates of all that are live."""
        self.demand_max_tok_s = max(self.demand_max_tok_s, demand_tok_s(state))


def demand_tok_s(state: EngineState) -> float:
    """Tokens per second that the readers of all live requests take."""
    return float(np.nansum(state.streams.column("rate_tok_s")))


def _sample(state: EngineState) -> Sample:
    streams = state.streams
    codes = streams.column("state")
    rate = streams.column("read_rate_tok_s")
    begun = rate > 0.0
    unread = streams.column("unread_tokens")[begun] - (state.now_s - streams.column("reader_s")[begun]) * rate[begun]
    runway_s = np.maximum(unread, 0.0) / rate[begun]
    return Sample(
        time_s=state.now_s,
        running_count=int(((codes >= RUNNING) & (codes <= LOADING)).sum()),
        waiting_count=int((codes == WAITING).sum()),
        paused_count=int((codes == PREEMPTED).sum()),
        demand_tok_s=demand_tok_s(state),
        least_runway_s=float(runway_s.min()) if runway_s.size else None,
        median_runway_s=float(np.median(runway_s)) if runway_s.size else None,
        kv_used_tokens=state.memory.kv_total_tokens - state.memory.kv_free_tokens,
        host_used_tokens=state.memory.host_total_tokens - state.memory.host_free_tokens,
    )
