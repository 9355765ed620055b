from tokenflow.link import StreamState, Telemetry, decode_telemetry, encode
from tokenflow.policy.buffer import VirtualBuffer
from tokenflow.policy.states import Mode, RateSource, Reason, RequestState, Variant
from tokenflow.rows import row_of, rows_of, stall_s_total
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


def test_a_row_carries_the_contracts_arithmetic():
    row = row_of(stream(), 12.25)
    assert row.generated_tokens == 7
    assert row.delivered_tokens == 6
    assert row.consumed_tokens == 2.5
    assert row.unread_tokens == 4
    assert row.runway_s == 2.25
    assert row.ttft_s == 1.0
    assert row.age_s == 2.25
    assert row.kv_device_tokens == 12
    assert row.reason is Reason.RUNNING_SURPLUS


def test_a_dry_reader_shows_only_once_it_is_advanced_and_then_as_starving():
    row = row_of(stream(), 15.0)
    assert row.stall_s == 1.0
    assert row.stall_count == 1
    assert row.reason is Reason.RUNNING_STARVING


def test_a_request_without_reader_has_no_runway():
    row = row_of(stream(None), 20.0)
    assert (row.unread_tokens, row.runway_s, row.stall_s) == (None, None, 0.0)
    assert row.reason is Reason.RUNNING_SURPLUS


def test_rows_survive_the_link():
    sent = telemetry(stream(), stream(None), sent_s=12.25)
    got = decode_telemetry(encode(sent))
    assert rows_of(got) == rows_of(sent)
    assert rows_of(got)[0].consumed_tokens == 2.5


def test_stalls_of_the_live_are_added_to_those_of_the_ended():
    ended = stream(state=RequestState.FINISHED)
    message = telemetry(stream(), ended, sent_s=16.0)
    rows_of(message)
    assert stall_s_total(message) == 1.0 + 2.0
