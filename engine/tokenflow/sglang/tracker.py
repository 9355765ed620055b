"""The request tracker: every request that the scheduler holds, with its virtual buffer.

Fed from the real scheduler: token counts at each step, states at each snapshot, deliveries from the HTTP process.
Single-threaded: everything here runs on the scheduler's own thread.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tokenflow.link import Delivery
from tokenflow.policy.buffer import VirtualBuffer
from tokenflow.policy.states import RateSource, Reason, RequestClass, RequestState
from tokenflow.sglang import annotation
from tokenflow.sglang.readers import Reader

KEEP_ENDED_S = 300.0
KEEP_ENDED_COUNT = 128
HEALTH_CHECK_PREFIX = "HEALTH_CHECK"


@dataclass(slots=True, eq=False)
class TrackedRequest:
    """One request. `req` is SGLang's own object, let go of when the request ends. Stamps: CLOCK_MONOTONIC seconds."""

    rid: str
    reader: Reader
    buffer: VirtualBuffer
    arrival_s: float
    prompt_tokens: int
    parent_rid: str | None
    req: Any
    state: RequestState = RequestState.WAITING
    reason: Reason | None = None
    first_token_s: float | None = None
    ended_s: float | None = None
    is_closed: bool = False
    is_disconnected: bool = False
    seen_at: int = 0

    @property
    def ttft_s(self) -> float | None:
        """Arrival to the first delivery; to the first token made where nothing is delivered piecemeal."""
        first_s = self.buffer.first_delivery_s or self.first_token_s
        return None if first_s is None else max(0.0, first_s - self.arrival_s)


@dataclass(slots=True)
class Totals:
    """Counters since the engine's start."""

    generated_tokens: int = 0
    finished_count: int = 0
    ended_stall_s: float = 0.0
    ended_preemption_count: int = 0


@dataclass(slots=True)
class RequestTracker:
    """`requests` holds the live ones in order of arrival, `ended` the last few that have ended."""

    default_rate_tok_s: float
    requests: dict[str, TrackedRequest] = field(default_factory=dict)
    ended: dict[str, TrackedRequest] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    new_ttfts_s: list[float] = field(default_factory=list)

    def see(self, req: Any, now_s: float) -> TrackedRequest | None:
        """The entry of one of SGLang's requests, made if it is new. None for health probes."""
        entry = self.requests.get(req.rid)
        if entry is not None or req.rid.startswith(HEALTH_CHECK_PREFIX):
            return entry
        note = annotation.read(req.sampling_params)
        reader = note.reader if note else self._default_reader()
        entry = TrackedRequest(
            rid=req.rid,
            reader=reader,
            buffer=VirtualBuffer(reader.rate_tok_s),
            arrival_s=note.arrival_s if note else now_s,
            prompt_tokens=len(req.origin_input_ids),
            parent_rid=note.parent_rid if note else None,
            req=req,
        )
        self.requests[req.rid] = entry
        return entry

    def _default_reader(self) -> Reader:
        return Reader(RequestClass.READING.value, self.default_rate_tok_s, RateSource.DEFAULT)

    def count_step(self, reqs: Iterable[Any], now_s: float) -> None:
        """A step of these requests has been processed: takes their new token counts and ends the finished ones."""
        requests, totals = self.requests, self.totals
        for req in reqs:
            entry = requests.get(req.rid)
            if entry is None or entry.req is not req:
                if req.rid in self.ended:
                    continue  # SGLang keeps a finished request in the batch for one more step
                entry = self.see(req, now_s)
                if entry is None:
                    continue
            made_tokens = len(req.output_ids)
            buffer = entry.buffer
            added_tokens = made_tokens - buffer.generated_tokens
            if added_tokens > 0:
                if entry.first_token_s is None:
                    entry.first_token_s = now_s
                buffer.generated_tokens = made_tokens
                totals.generated_tokens += added_tokens
            if req.finished_reason is not None:
                self.end(entry, now_s)

    def take_delivery(self, delivery: Delivery) -> None:
        """What the HTTP process sent to a client. Late, repeated and unknown ones are harmless."""
        entry = self.requests.get(delivery.rid) or self.ended.get(delivery.rid)
        if entry is None:
            return
        buffer = entry.buffer
        if delivery.delivered_tokens > buffer.delivered_tokens and entry.reader.rate_tok_s is not None:
            was_first = buffer.first_delivery_s is None
            buffer.deliver(delivery.stamp_s, delivery.delivered_tokens)
            if was_first and entry.ttft_s is not None:
                self.new_ttfts_s.append(entry.ttft_s)
        elif delivery.delivered_tokens > buffer.delivered_tokens:
            buffer.delivered_tokens = delivery.delivered_tokens
        if delivery.is_closed:
            entry.is_closed = True
            entry.is_disconnected = delivery.is_disconnect

    def end(self, entry: TrackedRequest, now_s: float) -> None:
        """Moves a request to the ended ones, of which the oldest are forgotten."""
        reason = getattr(entry.req, "finished_reason", None)
        is_abort = reason is None or type(reason).__name__ == "FINISH_ABORT"
        entry.state = RequestState.ABORTED if is_abort else RequestState.FINISHED
        entry.reason = None
        entry.ended_s = now_s
        entry.buffer.end(now_s)
        self.totals.finished_count += 1
        self.totals.ended_stall_s += entry.buffer.stall_s
        self.totals.ended_preemption_count += preemption_count(entry)
        entry.req = _Ended(preemption_count(entry))
        self.requests.pop(entry.rid, None)
        self.ended[entry.rid] = entry
        while len(self.ended) > KEEP_ENDED_COUNT:
            del self.ended[next(iter(self.ended))]

    def forget_old(self, now_s: float) -> None:
        """Drops ended requests that nobody will ask for any more."""
        for rid in [rid for rid, entry in self.ended.items() if now_s - (entry.ended_s or now_s) > KEEP_ENDED_S]:
            del self.ended[rid]


@dataclass(slots=True, frozen=True)
class _Ended:
    """What is kept of SGLang's request object once it has ended, so that its memory can go."""

    retraction_count: int
    kv: None = None


def preemption_count(entry: TrackedRequest) -> int:
    """How often SGLang took this request out of the batch before its end."""
    return int(getattr(entry.req, "retraction_count", 0) or 0)
