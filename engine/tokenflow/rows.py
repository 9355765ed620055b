"""From the tracker's state of a stream, as telemetry brings it, to the request row of the contract."""

import math

from tokenflow.link import StreamState, Telemetry
from tokenflow.policy.states import Reason, RequestState
from tokenflow.wire import RequestRow


def rows_of(telemetry: Telemetry) -> list[RequestRow]:
    """The rows at the moment at which the telemetry was sent. Advances the buffers in it to that moment."""
    return [row_of(stream, telemetry.sent_s) for stream in telemetry.streams]


def stall_s_total(telemetry: Telemetry) -> float:
    """Stalled seconds of all readers since the engine's start, the live ones' up to now included."""
    live_s = math.fsum(stream.buffer.stall_s for stream in telemetry.streams if stream.state.is_live)
    return telemetry.quality.stall_s_total + live_s


def row_of(stream: StreamState, now_s: float) -> RequestRow:
    """One row; the stream's reader reads up to `now_s` (CLOCK_MONOTONIC seconds)."""
    buffer = stream.buffer
    buffer.advance(now_s)
    unread_tokens, runway_s, ttft_s = buffer.unread_tokens, buffer.runway_s, stream.ttft_s
    return RequestRow(
        rid=stream.rid,
        state=stream.state,
        class_=stream.class_name,
        rate_tok_s=None if buffer.rate_tok_s is None else round(buffer.rate_tok_s, 3),
        rate_source=stream.rate_source,
        prompt_tokens=stream.prompt_tokens,
        generated_tokens=buffer.generated_tokens,
        delivered_tokens=buffer.delivered_tokens,
        consumed_tokens=round(buffer.consumed_tokens, 3),
        unread_tokens=None if unread_tokens is None else math.floor(unread_tokens + 1e-9),
        runway_s=None if runway_s is None else round(runway_s, 4),
        required_runway_s=stream.required_runway_s,
        preemptible=stream.preemptible,
        kv_device_tokens=stream.kv_device_tokens,
        kv_host_tokens=stream.kv_host_tokens,
        preemption_count=stream.preemption_count,
        stall_s=round(buffer.stall_s, 4),
        stall_count=buffer.stall_count,
        ttft_s=None if ttft_s is None else round(ttft_s, 4),
        age_s=round((stream.ended_s or now_s) - stream.arrival_s, 3),
        reason=_reason_of(stream),
        parent_rid=stream.parent_rid,
        hidden_tokens=buffer.hidden_tokens,
    )


def _reason_of(stream: StreamState) -> Reason | None:
    """What the policy said; else whether a running stream's reader is dry, which shows once it is advanced."""
    if stream.state is not RequestState.RUNNING or stream.reason is not None:
        return stream.reason
    buffer = stream.buffer
    is_dry = buffer.is_stalled or (buffer.has_reader and buffer.first_delivery_s is None)
    return Reason.RUNNING_STARVING if is_dry else Reason.RUNNING_SURPLUS
