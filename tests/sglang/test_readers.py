import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenflow.policy.states import RateSource
from tokenflow.sglang.readers import (
    BadReaderError,
    check_rate,
    parse_rate,
    reader_of,
    wish_of_body,
    wish_of_headers,
)
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


def reader(body=None, **headers):
    """The reader by these headers (`rate`, `class_`) and this field of the body."""
    named = {f"x-tokenflow-{name.rstrip('_')}": value for name, value in headers.items()}
    return reader_of(wish_of_headers(named, SETTINGS).under(wish_of_body(body, SETTINGS)), SETTINGS)


def test_without_headers_the_default_holds():
    made = reader()
    assert (made.class_name, made.rate_tok_s, made.rate_source) == ("reading", 5.0, RateSource.DEFAULT)


def test_a_class_brings_its_rate():
    made = reader(class_="listening")
    assert (made.class_name, made.rate_tok_s, made.rate_source) == ("listening", 3.3, RateSource.CLASS)


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        ({"rate": 20}, {"rate": "7"}, ("reading", 20.0, RateSource.BODY)),
        ({"rate": 20}, {"class_": "listening"}, ("listening", 20.0, RateSource.BODY)),
        ({"class": "agent"}, {"class_": "listening"}, ("agent", 30.0, RateSource.CLASS)),
        ({"class": "agent"}, {"rate": "7"}, ("agent", 7.0, RateSource.HEADER)),
        ({}, {"rate": "7"}, ("reading", 7.0, RateSource.HEADER)),
        ({"rate": None, "class": None}, {}, ("reading", 5.0, RateSource.DEFAULT)),
        ({"class": "batch", "rate": 9}, {}, ("batch", None, RateSource.CLASS)),
        (None, {"class_": "batch", "rate": "9"}, ("batch", None, RateSource.CLASS)),
        ({"class": "narrator", "rate": 500}, {}, ("narrator", 8.0, RateSource.BODY)),
    ],
)
def test_body_beats_header_beats_class_beats_default(body, headers, expected):
    made = reader(body, **headers)
    assert (made.class_name, made.rate_tok_s, made.rate_source) == expected


def test_a_rate_wins_over_the_class_up_to_the_classs_cap():
    assert reader(class_="narrator", rate="6.5").rate_tok_s == 6.5
    assert reader(class_="narrator", rate="500").rate_tok_s == 8.0
    assert reader(class_="narrator").max_rate_tok_s == 8.0


def test_the_cap_of_the_class_that_nobody_named_holds_too():
    capped = PluginSettings()
    capped.classes["reading"] = ClassSettings(rate_tok_s=6.0, max_rate_tok_s=60.0)
    assert reader_of(wish_of_headers({"x-tokenflow-rate": "9000"}, capped), capped).rate_tok_s == 60.0


def test_an_agent_is_known_by_its_acks_only():
    assert reader(class_="agent").needs_ack
    assert not reader().needs_ack


def test_an_unknown_class_is_refused_and_the_known_ones_named():
    with pytest.raises(BadReaderError, match="narrator") as caught:
        reader(class_="nobody")
    assert caught.value.parameter == "X-TokenFlow-Class"


@pytest.mark.parametrize(
    ("field", "parameter"),
    [
        ({"rate": "20"}, "tokenflow.rate"),
        ({"rate": True}, "tokenflow.rate"),
        ({"rate": 0.09}, "tokenflow.rate"),
        ({"rate": 10**400}, "tokenflow.rate"),
        ({"rate": float("nan")}, "tokenflow.rate"),
        ({"rate": []}, "tokenflow.rate"),
        ({"class": "nobody"}, "tokenflow.class"),
        ({"class": 3}, "tokenflow.class"),
        ({"class": ["agent"]}, "tokenflow.class"),
        ({"rates": 3}, "tokenflow.rates"),
        ("20", "tokenflow"),
        (20, "tokenflow"),
        ([], "tokenflow"),
    ],
)
def test_a_bad_field_is_refused_and_named(field, parameter):
    with pytest.raises(BadReaderError) as caught:
        reader(field)
    assert caught.value.parameter == parameter
    assert len(str(caught.value)) < 300


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=50)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


@given(st.one_of(JSON, st.fixed_dictionaries({}, optional={"rate": JSON, "class": JSON})))
def test_any_field_gives_a_reader_in_bounds_or_a_refusal(field):
    try:
        made = reader(field)
    except BadReaderError:
        return
    assert made.rate_tok_s is None or 0.1 <= made.rate_tok_s <= 10_000


@given(st.one_of(st.integers(), st.floats()))
def test_any_number_is_a_rate_in_bounds_or_refused(number):
    try:
        assert 0.1 <= check_rate("rate", number) <= 10_000
    except BadReaderError:
        assert not 0.1 <= number <= 10_000
