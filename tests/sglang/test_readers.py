import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenflow.policy.states import RateSource
from tokenflow.sglang.readers import BadReaderError, parse_rate, reader_of
from tokenflow.sglang.settings import ClassSettings, PluginSettings

SETTINGS = PluginSettings(default_rate_tok_s=5.0)
SETTINGS.classes["narrator"] = ClassSettings(rate_tok_s=4.0, max_rate_tok_s=8.0)


@pytest.mark.parametrize(
    "text", ["0", "-1", "nan", "inf", "-inf", "", "fast", "0.09", "10000.1", "1e9", "6,5", "1_0", "0x10", "٣٫٥", "٦"]
)
def test_a_bad_rate_is_refused_and_named(text):
    with pytest.raises(BadReaderError, match="X-TokenFlow-Rate") as caught:
        parse_rate(text)
    assert caught.value.parameter == "X-TokenFlow-Rate"


@given(st.text(max_size=60))
def test_any_text_gives_a_rate_in_bounds_or_a_refusal(text):
    try:
        rate_tok_s = parse_rate(text)
    except BadReaderError:
        return
    assert 0.1 <= rate_tok_s <= 10_000


@given(st.floats(min_value=0.1, max_value=10_000))
def test_every_rate_in_bounds_is_taken(rate_tok_s):
    assert parse_rate(repr(rate_tok_s)) == rate_tok_s


def test_without_headers_the_default_holds():
    reader = reader_of({}, SETTINGS)
    assert (reader.class_name, reader.rate_tok_s, reader.rate_source) == ("reading", 5.0, RateSource.DEFAULT)


def test_a_class_brings_its_rate():
    reader = reader_of({"x-tokenflow-class": "listening"}, SETTINGS)
    assert (reader.class_name, reader.rate_tok_s, reader.rate_source) == ("listening", 3.3, RateSource.CLASS)


def test_a_rate_wins_over_the_class_up_to_the_classs_cap():
    headers = {"x-tokenflow-class": "narrator", "x-tokenflow-rate": "6.5"}
    assert reader_of(headers, SETTINGS).rate_tok_s == 6.5
    headers["x-tokenflow-rate"] = "500"
    assert reader_of(headers, SETTINGS).rate_tok_s == 8.0


def test_an_unknown_class_is_refused_and_the_known_ones_named():
    with pytest.raises(BadReaderError, match="narrator"):
        reader_of({"x-tokenflow-class": "nobody"}, SETTINGS)
