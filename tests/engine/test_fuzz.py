"""Headers, fields and acks that nobody would send, to the real engine: an answer below 500, and it serves on."""

import json
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LIMIT_S = 90.0
PROMPT = "The sea"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
RATES = st.floats() | st.integers() | st.sampled_from([0.1, 6, "6", None, True, 1e308, "nan"])
CLASSES = st.sampled_from(["reading", "agent", "batch", "nobody", "", None, 3]) | st.text(max_size=12)
FIELDS = st.fixed_dictionaries({}, optional={"rate": RATES, "class": CLASSES, "speed": JSON}) | JSON
# What HTTP itself forbids in a header never reaches us.
HEADER = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=40).map(
    lambda text: text.strip().encode("latin-1")
)
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def json_of(value) -> bytes:
    """NaN and infinity too, as Python's encoder writes them: a client may."""
    return json.dumps(value).encode()


@pytest.fixture
def http(engine):
    with httpx.Client(base_url=engine.url, timeout=LIMIT_S) as client:
        yield client
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/generate"])
@FUZZ
@given(field=FIELDS, rate=HEADER, kind=HEADER, stream=st.booleans())
def test_readers(http, engine, path, field, rate, kind, stream):
    limits = {"max_tokens": 1, "max_output_tokens": 16, "sampling_params": {"max_new_tokens": 1}}
    asked = {
        "/v1/chat/completions": ("messages", [{"role": "user", "content": PROMPT}], "max_tokens"),
        "/v1/completions": ("prompt", PROMPT, "max_tokens"),
        "/v1/responses": ("input", PROMPT, "max_output_tokens"),
        "/generate": ("text", PROMPT, "sampling_params"),
    }
    name, question, limit = asked[path]
    body = {
        "model": "SmolLM2-135M-Instruct",
        name: question,
        limit: limits[limit],
        "stream": stream,
        "tokenflow": field,
    }
    headers = {"content-type": "application/json", "X-TokenFlow-Rate": rate, "X-TokenFlow-Class": kind}
    answer = http.post(path, content=json_of(body), headers=headers)
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@FUZZ
@given(
    rid=st.text(max_size=40).map(lambda text: quote(text, safe="")) | st.sampled_from(["", "..", "tf-1/ack", "%00"]),
    token=HEADER,
    body=JSON.map(json_of) | st.binary(max_size=60) | st.just(b"[" * 3000),
    method=st.sampled_from(["POST", "GET", "PUT", "DELETE", "OPTIONS", "HEAD"]),
    ending=st.sampled_from(["/ack", "", "/", "/ack/", "/nothing"]),
)
def test_acks(http, rid, token, body, method, ending):
    answer = http.request(
        method, f"/tokenflow/v1/streams/{rid}{ending}", content=body, headers={"X-TokenFlow-Ack-Token": token}
    )
    assert 400 <= answer.status_code < 500
