"""The request tracker: every request that the scheduler holds, with its virtual buffer.

Fed from the real scheduler: token counts at each step, states at each snapshot, deliveries from the HTTP process.
Single-threaded: everything here runs on the scheduler's own thread.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tokenflow.counters import Counters
from tokenflow.link import Ack, Delivery, StreamState
from tokenflow.policy.buffer import VirtualBuffer
from tokenflow.policy.reading import ReadingRate
from tokenflow.policy.states import RateSource, RequestState
from tokenflow.quality.effective import added_weight
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
    is_streamed: bool = False  # piece by piece; else the whole answer at once
    is_blocked: bool = False  # the client does not drain what it is sent
    is_left: bool = False  # the client is gone: whatever is made from here on is for nobody
    is_backlogged: bool = False  # and more is made for it than is kept for such a client
    max_rate_tok_s: float | None = None  # the cap of its class
    reading: ReadingRate | None = None  # from its first ack on
    length_tokens: float = 0.0  # the most that it may become; by it unread tokens are weighed
    counted_tokens: int = 0  # of those made, so many are in the counters
    counted_stall_s: float = 0.0
    earlier_preemption_count: int = 0  # from before it was followed

    @property
    def is_kept_out(self) -> bool:
        """It may not run, by an operator's hand or because its client does not take what was made."""
        return self.is_held or self.is_backlogged


@dataclass(slots=True)
class Totals:
    """Counters since the engine's start."""

    generated_tokens: int = 0
    effective_tokens: float = 0.0  # delivered ones, by their weights
    zombie_tokens: int = 0  # made after their client had left
    disconnect_counts: dict[str, int] = field(default_factory=dict)  # clients that left early, by phase
    ended_stall_s: float = 0.0
    ended_preemption_count: int = 0


@dataclass(slots=True)
class RequestTracker:
    """`requests` holds the live ones in order of arrival, `ended` those that ended in the last seconds."""

    requests: dict[str, TrackedRequest] = field(default_factory=dict)
    ended: dict[str, TrackedRequest] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    counters: Counters = field(default_factory=Counters)
    new_ttfts_s: list[float] = field(default_factory=list)
    new_ways_s: list[tuple[float, float]] = field(default_factory=list)  # of first tokens: made → sent → delivered
    max_backlog_tokens: int = 512  # of a client that does not drain its stream; above it nothing more is made
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
            rate_tok_s = _capped(self.default_rate_tok_s, reader.max_rate_tok_s)
        stream = StreamState(
            rid=req.rid,
            parent_rid=note.parent_rid if note else None,
            class_name=reader.class_name,
            rate_source=reader.rate_source,
            prompt_tokens=len(req.origin_input_ids),
            arrival_s=note.arrival_s if note else now_s,
            buffer=VirtualBuffer(rate_tok_s, needs_ack=reader.needs_ack),
            is_met_midway=len(req.output_ids) > 1,
            preemption_count=preemption_count(req),
        )
        entry = TrackedRequest(stream, req, last_seen_s=now_s, max_rate_tok_s=reader.max_rate_tok_s)
        entry.is_streamed = note is not None and note.is_streamed
        entry.length_tokens = float(req.sampling_params.max_new_tokens or 0)
        entry.counted_tokens = len(req.output_ids) if stream.is_met_midway else 0
        entry.earlier_preemption_count = stream.preemption_count
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
            added_tokens = made_tokens - buffer.generated_tokens - buffer.hidden_tokens
            if added_tokens > 0:
                hidden_tokens = req.reasoning_tokens
                if hidden_tokens:
                    buffer.hide(hidden_tokens)
                buffer.generate(made_tokens - buffer.hidden_tokens)
                if entry.stream.first_token_s is None and buffer.generated_tokens:
                    entry.stream.first_token_s = now_s
                totals.generated_tokens += added_tokens
                if entry.is_left:
                    totals.zombie_tokens += added_tokens
                    self.counters.add_zombies(entry.stream.class_name, added_tokens)
                elif entry.is_blocked:
                    backlog_tokens = buffer.generated_tokens - buffer.delivered_tokens
                    entry.is_backlogged = backlog_tokens > self.max_backlog_tokens
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
            self._deliver(entry, delivery)
            if was_first and buffer.rate_tok_s is not None and not entry.stream.is_met_midway:
                ttft_s = max(0.0, delivery.stamp_s - entry.stream.arrival_s)
                self.new_ttfts_s.append(ttft_s)
                self.counters.observe_ttft(entry.stream.class_name, ttft_s)
                self._note_way(entry.stream.first_token_s, delivery)
        entry.is_blocked = delivery.is_blocked
        entry.is_backlogged &= entry.is_blocked
        if delivery.is_closed:
            entry.is_closed = True
        if delivery.is_disconnect and not entry.is_left and entry.req is not None:
            entry.is_left = True
            buffer.end(delivery.stamp_s)  # nobody waits for more
            phase = "stream" if buffer.first_delivery_s is not None else "first_token"
            self.totals.disconnect_counts[phase] = self.totals.disconnect_counts.get(phase, 0) + 1

    def _deliver(self, entry: TrackedRequest, delivery: Delivery) -> None:
        """Each token counts by how much its reader had unread when it came: nothing where nobody reads along."""
        buffer, before_tokens = entry.stream.buffer, entry.stream.buffer.delivered_tokens
        buffer.deliver(delivery.stamp_s, delivery.delivered_tokens)
        if buffer.has_reader and not entry.is_left:
            added_tokens = buffer.delivered_tokens - before_tokens
            weight = added_weight(before_tokens - buffer.consumed_tokens, added_tokens, entry.length_tokens)
            self.totals.effective_tokens += weight
            self.counters.add_effective(entry.stream.class_name, weight)

    def _note_way(self, made_s: float | None, delivery: Delivery) -> None:
        if made_s is not None and delivery.sent_s is not None:
            sent_s = delivery.sent_s
            self.new_ways_s.append((max(0.0, sent_s - made_s), max(0.0, delivery.stamp_s - sent_s)))

    def take_ack(self, ack: Ack) -> None:
        """What a client says of its reader, bounded by its class. Late, repeated and unknown ones are harmless."""
        entry = self.requests.get(ack.rid) or self.ended.get(ack.rid)
        if entry is None:
            return
        stream, buffer = entry.stream, entry.stream.buffer
        if buffer.acked_tokens is not None and ack.consumed_tokens < buffer.acked_tokens:
            return
        if entry.reading is None:
            entry.reading = ReadingRate(buffer.rate_tok_s)
        if ack.reader_class is not None:
            self._change_class(entry, ack)
        if ack.rate_tok_s is not None and buffer.rate_tok_s is not None:
            entry.reading.claim(ack.rate_tok_s)
            stream.rate_source = RateSource.ACK
            buffer.set_rate(ack.stamp_s, _capped(ack.rate_tok_s, entry.max_rate_tok_s))
        buffer.acknowledge(ack.stamp_s, ack.consumed_tokens)
        is_dry = buffer.acked_tokens == buffer.delivered_tokens
        if (
            entry.reading.observe(ack.stamp_s, buffer.acked_tokens or 0, is_dry)
            and entry.reading.tok_s is not None
            and buffer.rate_tok_s is not None
        ):
            stream.rate_source = RateSource.ACK
            buffer.set_rate(ack.stamp_s, _capped(entry.reading.tok_s, entry.max_rate_tok_s))

    def _change_class(self, entry: TrackedRequest, ack: Ack) -> None:
        """The new class's rate holds until the reader's own is measured or claimed; what was measured stays."""
        new, reading = ack.reader_class, entry.reading
        assert new is not None
        assert reading is not None
        stream, buffer = entry.stream, entry.stream.buffer
        stream.class_name, entry.max_rate_tok_s = new.name, new.max_rate_tok_s
        if new.rate_tok_s is None:
            stream.rate_source = RateSource.CLASS
            buffer.set_rate(ack.stamp_s, None)
        elif reading.tok_s is None:
            stream.rate_source = RateSource.CLASS
            reading.claim(new.rate_tok_s)
            buffer.set_rate(ack.stamp_s, new.rate_tok_s)
        else:
            stream.rate_source = RateSource.ACK
            buffer.set_rate(ack.stamp_s, _capped(reading.tok_s, entry.max_rate_tok_s))

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
        self._count(entry)
        self._add_to_totals(entry)
        entry.req = None
        self.requests.pop(stream.rid, None)
        self.ended[stream.rid] = entry
        while len(self.ended) > KEEP_ENDED_COUNT:
            del self.ended[next(iter(self.ended))]

    def sample(self, now_s: float) -> None:
        """Once a second: brings the counters up to date and samples the runway of everybody who reads."""
        for entry in self.requests.values():
            buffer = entry.stream.buffer
            buffer.advance(now_s)
            self._count(entry)
            runway_s = buffer.runway_s
            if runway_s is not None and buffer.first_delivery_s is not None and not buffer.is_ended:
                self.counters.observe_runway(entry.stream.class_name, runway_s)

    def _count(self, entry: TrackedRequest) -> None:
        """What has come since it was last counted."""
        stream, buffer = entry.stream, entry.stream.buffer
        if buffer.made_tokens > entry.counted_tokens:
            self.counters.add_tokens(stream.class_name, buffer.made_tokens - entry.counted_tokens)
            entry.counted_tokens = buffer.made_tokens
        if buffer.stall_s > entry.counted_stall_s:
            self.counters.add_stall(stream.class_name, buffer.stall_s - entry.counted_stall_s)
            entry.counted_stall_s = buffer.stall_s

    def _add_to_totals(self, entry: TrackedRequest) -> None:
        """Of one that is followed no longer, so that sums over live and ended ones never fall."""
        self.totals.ended_stall_s += entry.stream.buffer.stall_s
        self.totals.ended_preemption_count += entry.stream.preemption_count - entry.earlier_preemption_count

    def clear(self) -> None:
        """Forgets every request, and with it SGLang's objects: while the mode is off nothing is followed."""
        for entry in self.requests.values():
            self._count(entry)
            entry.stream.preemption_count = preemption_count(entry.req)
            self._add_to_totals(entry)
        self.requests.clear()
        self.ended.clear()

    def forget_old(self, now_s: float) -> None:
        """Drops ended requests of which everybody has heard."""
        old = [rid for rid, entry in self.ended.items() if now_s - (entry.stream.ended_s or now_s) > KEEP_ENDED_S]
        for rid in old:
            del self.ended[rid]


def _capped(rate_tok_s: float, cap_tok_s: float | None) -> float:
    return rate_tok_s if cap_tok_s is None else min(rate_tok_s, cap_tok_s)


def preemption_count(req: Any) -> int:
    """How often SGLang has taken this request out of the batch."""
    return int(req.retraction_count)
