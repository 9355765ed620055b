"""A small stream and a telemetry message around it, for tests of what reads them."""

from tokenflow.link import StreamState, Telemetry
from tokenflow.policy.buffer import VirtualBuffer
from tokenflow.policy.states import Mode, RateSource, RequestState, Variant
from tokenflow.wire import Capacity, Latency, PluginState, Quality, Transfers


def stream(rate_tok_s: float | None = 2.0, state: RequestState = RequestState.RUNNING) -> StreamState:
    buffer = VirtualBuffer(rate_tok_s)
    buffer.deliver(11.0, 6)
    buffer.generate(7)
    return StreamState("tf-a", None, "reading", RateSource.HEADER, 5, 10.0, buffer, state, kv_device_tokens=12)


def telemetry(*streams: StreamState, sent_s: float) -> Telemetry:
    return Telemetry(
        plugin_version="1",
        engine_version="2",
        pid=1,
        sequence=1,
        sent_s=sent_s,
        step_count=1,
        last_step_s=None,
        has_work=True,
        mode=Mode.OBSERVE,
        variant=Variant.TOKENFLOW,
        overload=False,
        revision=0,
        fault_count=0,
        plugin=PluginState.ACTIVE,
        blocked_by=[],
        capacity=Capacity(),
        transfers=Transfers(),
        latency=Latency(),
        quality=Quality(stall_s_total=1.0),
        streams=list(streams),
    )
