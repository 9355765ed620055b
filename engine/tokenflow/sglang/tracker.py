"""The request tracker: every request that the scheduler holds, with its virtual buffer.

Fed from the real scheduler: token counts at each step, states at each snapshot, deliveries from the HTTP process.
Single-threaded: everything here runs on the scheduler's own thread.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tokenflow.link import Delivery, StreamState
from tokenflow.policy.buffer import VirtualBuffer
from tokenflow.policy.states import RateSource, RequestState
from tokenflow.sglang import annotation
from tokenflow.sglang.readers import BATCH_READER

KEEP_ENDED_S = 5.0  # long enough that every subscriber hears of the end and of the last deliveries
KEEP_ENDED_COUNT = 256
HEALTH_CHECK_PREFIX = "HEALTH_CHECK"


@dataclass(slots=True, eq=False)
class TrackedRequest:
    """One request. `stream` is what telemetry sends; `req` is SGLang's own object, None once it has ended."""

    stream: StreamState
    req: Any
    is_closed: bool = False
    last_seen_s: float = 0.0
    is_held: bool = False  # by an operator: paused, or not started, until told otherwise
    paused_since_s: float | None = None


@dataclass(slots=True)
class Totals:
    """Counters since the engine's start."""

    generated_tokens: int = 0
    ended_stall_s: float = 0.0
    ended_preemption_count: int = 0


@dataclass(slots=True)
class RequestTracker:
    """`requests` holds the live ones in order of arrival, `ended` those that ended in the last seconds."""

    requests: dict[str, TrackedRequest] = field(default_factory=dict)
    ended: dict[str, TrackedRequest] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    new_ttfts_s: list[float] = field(default_factory=list)
    default_rate_tok_s: float | None = None  # for new streams that name no rate; None: what the HTTP process says

    def see(self, req: Any, now_s: float) -> TrackedRequest | None:
        """The entry of one of SGLang's requests, made if it is new. None for health probes and warm-ups."""
        entry = self.requests.get(req.rid)
        if entry is not None or req.rid.startswith(HEALTH_CHECK_PREFIX):
            return entry
        if annotation.is_hidden(req.sampling_params):
            return None
        note = annotation.read(req.sampling_params)
        reader = note.reader if note else BATCH_READER  # by a route that we do not know: nobody says that he reads
        rate_tok_s = reader.rate_tok_s
        if reader.rate_source is RateSource.DEFAULT and self.default_rate_tok_s is not None:
            rate_tok_s = self.default_rate_tok_s
        stream = StreamState(
            rid=req.rid,
            parent_rid=note.parent_rid if note else None,
            class_name=reader.class_name,
            rate_source=reader.rate_source,
            prompt_tokens=len(req.origin_input_ids),
            arrival_s=note.arrival_s if note else now_s,
            buffer=VirtualBuffer(rate_tok_s),
            is_met_midway=len(req.output_ids) > 1,
        )
        entry = TrackedRequest(stream, req, last_seen_s=now_s)
        self.requests[req.rid] = entry
        return entry

    def count_step(self, reqs: Iterable[Any], now_s: float) -> None:
        """A step of these requests has been processed: takes their new token counts and ends the finished ones."""
        requests, totals = self.requests, self.totals
        for req in reqs:
            entry = requests.get(req.rid)
            if entry is None:
                if req.rid in self.ended:
                    continue  # SGLang keeps a finished request in the batch for one more step
                entry = self.see(req, now_s)
                if entry is None:
                    continue
            made_tokens = len(req.output_ids)
            buffer = entry.stream.buffer
            added_tokens = made_tokens - buffer.generated_tokens
            if added_tokens > 0:
                if entry.stream.first_token_s is None:
                    entry.stream.first_token_s = now_s
                buffer.generated_tokens = made_tokens
                totals.generated_tokens += added_tokens
            if req.finished_reason is not None:
                self.end(entry, now_s)

    def take_delivery(self, delivery: Delivery) -> None:
        """What the HTTP process sent to a client. Late, repeated and unknown ones are harmless."""
        entry = self.requests.get(delivery.rid) or self.ended.get(delivery.rid)
        if entry is None:
            return
        buffer = entry.stream.buffer
        if delivery.delivered_tokens > buffer.delivered_tokens:
            was_first = buffer.first_delivery_s is None
            buffer.deliver(delivery.stamp_s, delivery.delivered_tokens)
            if was_first and buffer.rate_tok_s is not None and not entry.stream.is_met_midway:
                self.new_ttfts_s.append(max(0.0, delivery.stamp_s - entry.stream.arrival_s))
        if delivery.is_closed:
            entry.is_closed = True

    def end(self, entry: TrackedRequest, now_s: float) -> None:
        """Moves a request to the ended ones and lets go of SGLang's object."""
        reason = getattr(entry.req, "finished_reason", None)
        is_abort = reason is None or type(reason).__name__ == "FINISH_ABORT"
        stream = entry.stream
        stream.state = RequestState.ABORTED if is_abort else RequestState.FINISHED
        stream.reason = None
        stream.ended_s = now_s
        stream.kv_device_tokens, stream.kv_host_tokens = 0, None
        stream.required_runway_s = stream.preemptible = None
        stream.preemption_count = preemption_count(entry.req)
        stream.buffer.end(now_s)
        self.totals.ended_stall_s += stream.buffer.stall_s
        self.totals.ended_preemption_count += stream.preemption_count
        entry.req = None
        self.requests.pop(stream.rid, None)
        self.ended[stream.rid] = entry
        while len(self.ended) > KEEP_ENDED_COUNT:
            del self.ended[next(iter(self.ended))]

    def clear(self) -> None:
        """Forgets every request, and with it SGLang's objects: while the mode is off nothing is followed."""
        self.requests.clear()
        self.ended.clear()

    def forget_old(self, now_s: float) -> None:
        """Drops ended requests of which everybody has heard."""
        old = [rid for rid, entry in self.ended.items() if now_s - (entry.stream.ended_s or now_s) > KEEP_ENDED_S]
        for rid in old:
            del self.ended[rid]


def preemption_count(req: Any) -> int:
    """How often SGLang has taken this request out of the batch."""
    return int(req.retraction_count)
