from telemetry_samples import stream, telemetry

from tokenflow.link import decode_telemetry, encode
from tokenflow.policy.states import Reason, RequestState
from tokenflow.rows import row_of, rows_of, stall_s_total


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
