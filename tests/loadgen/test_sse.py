"""The event decoder: any split of the bytes gives the same events."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenflow.loadgen.sse import EventDecoder, ServerEvent


def decode(*chunks: bytes) -> list[ServerEvent]:
    decoder = EventDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def test_an_event():
    assert decode(b"data: one\n\n") == [ServerEvent("one")]


def test_several_events_in_one_chunk():
    assert decode(b"data: one\n\ndata: two\n\n") == [ServerEvent("one"), ServerEvent("two")]


def test_several_data_lines_are_one_text():
    assert decode(b"data: one\ndata: two\n\n") == [ServerEvent("one\ntwo")]


def test_a_named_event():
    assert decode(b"event: error\ndata: x\n\ndata: y\n\n") == [ServerEvent("x", "error"), ServerEvent("y")]


def test_comments_ids_and_unknown_fields_are_passed_over():
    assert decode(b": ping\n\nid: 3\nretry: 10\nfoo: bar\ndata: x\n\n") == [ServerEvent("x")]


def test_one_space_after_the_colon_is_not_part_of_the_value():
    assert decode(b"data:x\n\ndata:  y\n\n") == [ServerEvent("x"), ServerEvent(" y")]


def test_an_event_without_its_empty_line_is_dropped():
    assert decode(b"data: one\n\ndata: tw") == [ServerEvent("one")]
    assert decode(b"data: one\n\ndata: two\n") == [ServerEvent("one")]


def test_a_byte_order_mark_is_no_part_of_the_first_field():
    assert decode(b"\xef\xbb\xbfdata: x\n\n") == [ServerEvent("x")]


def test_an_empty_data_field_is_an_event():
    assert decode(b"data:\n\n") == [ServerEvent("")]


def test_bytes_that_are_not_utf8_become_replacement_characters():
    assert decode(b"data: a\xffb\n\n") == [ServerEvent("a\ufffdb")]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_every_line_ending_and_every_split(ending):
    body = f"event: e{ending}data: ü€𝄞{ending}data: 2{ending}{ending}data: 3{ending}{ending}".encode()
    expected = [ServerEvent("ü€𝄞\n2", "e"), ServerEvent("3")]
    for position in range(len(body) + 1):
        assert decode(body[:position], body[position:]) == expected, position
    assert decode(*(body[index : index + 1] for index in range(len(body)))) == expected


@given(body=st.text("adt:e \n\r€", max_size=60), cuts=st.lists(st.integers(0, 200), max_size=6))
def test_splitting_never_changes_the_events(body, cuts):
    data = body.encode() + b"\n\n"
    positions = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[start:end] for start, end in itertools.pairwise(positions)]
    assert decode(*pieces) == decode(data)
