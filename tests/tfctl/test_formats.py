"""Numbers, bars and glyphs."""

import pytest

from tfctl import formats
from tokenflow.policy.states import RateSource, RequestState
from tokenflow.wire import EngineState


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.0041, "4 ms"),
        (0.0994, "99 ms"),
        (0.0996, "0.10 s"),
        (0.994, "0.99 s"),
        (0.996, "1.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (99.4, "99 s"),
        (99.6, "1m40s"),
        (125, "2m05s"),
        (3599.6, "1h00m"),
        (4020, "1h07m"),
        (273600, "3d04h"),
        (-0.5, "-0.50 s"),
        (-125, "-2m05s"),
    ],
)
def test_seconds(value_s, text):
    assert formats.seconds(value_s) == text


def test_null_in_ascii():
    assert formats.seconds(None, unicode=False) == "-"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0, "····"), (0.01, "▏···"), (0.5, "██··"), (0.53, "██▏·"), (1, "████"), (7, "████"), (-1, "····")],
)
def test_bar(ratio, text):
    assert formats.bar(ratio, 4) == text


@pytest.mark.parametrize(("ratio", "text"), [(0, "...."), (0.01, "#..."), (0.5, "##.."), (1, "####"), (9, "####")])
def test_bar_in_ascii(ratio, text):
    assert formats.bar(ratio, 4, unicode=False) == text


@pytest.mark.parametrize(
    ("value_bytes", "text"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (655360, "640 KiB"), (1.5 * 2**30, "1.5 GiB"), (2**42, "4 TiB")],
)
def test_size(value_bytes, text):
    assert formats.size(value_bytes) == text


@pytest.mark.parametrize(("value", "text"), [(20.0, "20"), (12.34, "12.3"), (640.7, "641"), (0.1, "0.1"), (None, "–")])
def test_figure(value, text):
    assert formats.figure(value) == text


def test_every_state_has_a_glyph_of_its_own_and_an_ascii_twin():
    for states, glyph in ((EngineState, formats.engine_glyph), (RequestState, formats.request_glyph)):
        assert all(len(glyph(state)) == 1 and glyph(state, unicode=False).isascii() for state in states)
        assert len({glyph(state) for state in states}) == len(states)
    assert all(formats.rate_source(source) for source in RateSource)
