"""The routes of a stream's client: who may ack, what an ack may say, and that nothing said there does harm."""

import json
import string

import msgspec
import pytest
from frontend_rig import Reports
from hypothesis import given
from hypothesis import strategies as st

from tokenflow.sglang import settings
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.frontend import Frontend
from tokenflow.sglang.readers import BATCH_READER
from tokenflow.sglang.settings import ClassSettings
from tokenflow.sglang.stream_book import KEEP_ENDED_COUNT, StreamBook
from tokenflow.sglang.stream_routes import MAX_BODY_BYTES, StreamRoutes
from tokenflow.sglang.streams import StreamContext
from tokenflow.wire import RequestRow


class Rows:
    """In place of the scheduler, which knows every stream or is too busy."""

    is_busy = False
    known = True

    async def row(self, rid):
        if self.is_busy:
            raise TimeoutError
        row = RequestRow(
            rid=rid,
            state="running",
            class_="reading",
            rate_tok_s=6.0,
            rate_source="ack",
            prompt_tokens=1,
            generated_tokens=9,
            delivered_tokens=8,
            consumed_tokens=3.0,
            unread_tokens=6,
            runway_s=1.0,
        )
        return row if self.known else None


class Desk:
    """The routes, with one open stream of 50 delivered tokens."""

    def __init__(self) -> None:
        self.rows = Rows()
        configured = settings.load()
        configured.classes["narrator"] = ClassSettings(rate_tok_s=4.0, max_rate_tok_s=8.0, needs_ack=False)
        self.frontend = Frontend(configured, FaultGuard(), Reports(), self.rows)
        self.routes = StreamRoutes(self.frontend)
        self.stream = self.open("tf-a")

    def open(self, rid, *choices, is_streamed=True):
        stream = StreamContext(rid, BATCH_READER, 0.0)
        self.frontend.book.add(stream)
        for choice in choices or (rid,):
            self.frontend.book.add_choice(stream, choice, is_streamed)
            stream.choice(choice).sent_tokens = 50
        return stream

    async def ask(self, path, body=b"", token=None, method="POST"):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        raw = [] if token is None else [(b"x-tokenflow-ack-token", token.encode("latin-1", "replace"))]
        scope = {"type": "http", "method": method, "path": path, "headers": raw}
        messages = []

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            messages.append(message)

        await self.routes(scope, receive, send)
        start, answer = messages
        return start["status"], json.loads(answer["body"])

    async def ack(self, body, rid="tf-a", token=""):
        return await self.ask(f"/tokenflow/v1/streams/{rid}/ack", body, self.stream.ack_token if token == "" else token)

    @property
    def acks(self):
        return self.frontend.reporter.acks


@pytest.fixture
def desk():
    return Desk()


async def test_an_ack_is_taken_and_answered_with_what_holds(desk):
    status, answer = await desk.ack({"consumed_tokens": 20})
    assert status == 200
    assert answer == {"rid": "tf-a", "consumed_tokens": 20, "delivered_tokens": 50, "is_ended": False}
    [ack] = desk.acks
    assert (ack.rid, ack.consumed_tokens, ack.rate_tok_s, ack.reader_class) == ("tf-a", 20, None, None)


async def test_never_more_than_was_delivered_and_never_back(desk):
    for said, taken in ((2**53, 50), (20, 50), (50, 50)):
        assert (await desk.ack({"consumed_tokens": said}))[1]["consumed_tokens"] == taken
    assert [ack.consumed_tokens for ack in desk.acks] == [50, 50], "a late one is not passed on"


async def test_an_ack_brings_rate_and_class(desk):
    await desk.ack({"consumed_tokens": 1, "rate": 6.5, "class": "narrator"})
    [ack] = desk.acks
    assert (ack.rate_tok_s, ack.reader_class.name, ack.reader_class.max_rate_tok_s) == (6.5, "narrator", 8.0)


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({}, "consumed_tokens"),
        ({"consumed_tokens": -1}, "consumed_tokens"),
        ({"consumed_tokens": 1.5}, "consumed_tokens"),
        ({"consumed_tokens": "1"}, "consumed_tokens"),
        ({"consumed_tokens": True}, "consumed_tokens"),
        ({"consumed_tokens": None}, "consumed_tokens"),
        ({"consumed_tokens": 10**30}, None),
        ({"consumed_tokens": 1, "rate": 0}, "rate"),
        ({"consumed_tokens": 1, "rate": "8"}, "rate"),
        ({"consumed_tokens": 1, "class": "nobody"}, "class"),
        ({"consumed_tokens": 1, "class": 7}, "class"),
        ({"consumed_tokens": 1, "more": 7}, None),
        ([], None),
        (b"", None),
        (b"{", None),
        (b"\xff\xfe", None),
        (b'{"consumed_tokens": NaN}', None),
        (b"[" * 4000, None),
    ],
)
async def test_a_bad_ack_is_refused_in_openais_shape(desk, body, parameter):
    status, answer = await desk.ack(body)
    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    if parameter is not None:
        assert answer["error"]["param"] == parameter
    assert not desk.acks


async def test_an_ack_is_small(desk):
    assert (await desk.ack(b" " * (MAX_BODY_BYTES + 1)))[0] == 413


@pytest.mark.parametrize("token", [None, "x", "\xe9" * 22, "a" * 5000])
async def test_only_the_owner_may_ack_and_look(desk, token):
    for method, path in (("POST", "/tokenflow/v1/streams/tf-a/ack"), ("GET", "/tokenflow/v1/streams/tf-a")):
        status, answer = await desk.ask(path, {"consumed_tokens": 1}, token, method)
        assert (status, answer["error"]["code"]) == (403, "wrong_ack_token")
    assert not desk.acks


async def test_another_streams_token_is_a_wrong_one(desk):
    other = desk.open("tf-b")
    assert (await desk.ack({"consumed_tokens": 1}, token=other.ack_token))[0] == 403


async def test_an_unknown_stream_is_404(desk):
    assert (await desk.ack({"consumed_tokens": 1}, rid="tf-nobody"))[0] == 404


async def test_late_acks_of_an_ended_stream_are_harmless(desk):
    desk.frontend.book.close(desk.stream)
    status, answer = await desk.ack({"consumed_tokens": 30})
    assert (status, answer["is_ended"]) == (200, True)


async def test_every_choice_is_acked_by_its_own_id(desk):
    desk.stream = desk.open("tf-n", "one", "two")
    assert (await desk.ack({"consumed_tokens": 5}, rid="tf-n"))[0] == 409
    assert (await desk.ack({"consumed_tokens": 5}, rid="two"))[1]["rid"] == "two"
    assert [ack.rid for ack in desk.acks] == ["two"]


async def test_the_only_choice_is_acked_by_the_responses_id_too(desk):
    desk.stream = desk.open("tf-r", "resp_1")
    assert (await desk.ack({"consumed_tokens": 5}, rid="tf-r"))[1]["rid"] == "resp_1"


async def test_nobody_reads_along_without_stream(desk):
    desk.stream = desk.open("tf-w", is_streamed=False)
    status, answer = await desk.ack({"consumed_tokens": 5}, rid="tf-w")
    assert status == 409
    assert not desk.acks
    assert answer["error"]["code"] == "not_streamed"


async def test_the_client_sees_its_row(desk):
    status, row = await desk.ask("/tokenflow/v1/streams/tf-a", b"", desk.stream.ack_token, "GET")
    assert (status, row["rid"], row["class"], row["runway_s"]) == (200, "tf-a", "reading", 1.0)
    desk.rows.known = False
    assert (await desk.ask("/tokenflow/v1/streams/tf-a", b"", desk.stream.ack_token, "GET"))[0] == 404
    desk.rows.is_busy = True
    assert (await desk.ask("/tokenflow/v1/streams/tf-a", b"", desk.stream.ack_token, "GET"))[0] == 503


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/tokenflow/v1/streams/tf-a/ack", 405),
        ("POST", "/tokenflow/v1/streams/tf-a", 405),
        ("DELETE", "/tokenflow/v1/streams/tf-a", 405),
        ("GET", "/tokenflow/", 404),
        ("GET", "/tokenflow/v1/streams/", 404),
        ("POST", "/tokenflow/v1/streams//ack", 404),
        ("POST", "/tokenflow/v1/streams/tf-a/ack/more", 404),
    ],
)
async def test_what_is_no_route_is_answered_by_us(desk, method, path, status):
    assert (await desk.ask(path, {"consumed_tokens": 1}, desk.stream.ack_token, method))[0] == status


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)
BODY = st.one_of(
    st.binary(max_size=60),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {"consumed_tokens": st.integers(-10, 2**70) | JSON}, optional={"rate": JSON, "class": JSON, "x": JSON}
    ).map(lambda value: json.dumps(value).encode()),
)


@given(
    BODY,
    st.sampled_from(["right", "none"]) | st.text(string.printable, max_size=30),
    st.sampled_from(["POST", "GET", "PUT"]),
    st.sampled_from(["tf-a", "tf-a/ack"]) | st.text(max_size=40),
)
async def test_nothing_that_is_sent_is_a_fault_of_ours_or_a_wrong_ack(body, token, method, rest):
    desk = Desk()
    token = {"right": desk.stream.ack_token, "none": None}.get(token, token)
    status, answer = await desk.ask(f"/tokenflow/v1/streams/{rest}", body, token, method)
    assert status in (200, 400, 403, 404, 405)
    assert (status == 200) == ("error" not in answer)
    assert desk.frontend.guard.fault_count == 0
    for ack in desk.acks:
        assert 0 <= ack.consumed_tokens <= 50
        assert ack.rate_tok_s is None or 0.1 <= ack.rate_tok_s <= 10_000
        assert status == 200
    msgspec.msgpack.encode(desk.acks)


def test_ended_streams_are_bounded():
    book = StreamBook()
    for number in range(KEEP_ENDED_COUNT + 50):
        stream = StreamContext(f"tf-{number}", BATCH_READER, 0.0)
        book.add(stream)
        assert book.close(stream)
        assert not book.close(stream)
    assert book.find("tf-0") is None
    assert book.find(f"tf-{KEEP_ENDED_COUNT + 49}") is not None
    assert len(book._ended) == KEEP_ENDED_COUNT
