"""Readers on the real engine: rates by every way in, acks, clients that do not drain and clients that vanish."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

LIMIT_S = 90.0
MODEL = "SmolLM2-135M-Instruct"  # /v1/responses takes no other name
PROMPT = "Tell me about the sea."


def body_of(path: str, max_tokens: int, **more: Any) -> dict[str, Any]:
    """A streamed request of exactly `max_tokens` tokens for this route."""
    if path == "/generate":
        return {
            "text": PROMPT,
            "stream": True,
            "sampling_params": {"max_new_tokens": max_tokens, "ignore_eos": True, "temperature": 0.0},
            **more,
        }
    common = {"model": MODEL, "stream": True, "temperature": 0.0, **more}
    if path == "/v1/responses":
        return {"input": PROMPT, "max_output_tokens": max_tokens, **common}
    asked = {"prompt": PROMPT} if path == "/v1/completions" else {"messages": [{"role": "user", "content": PROMPT}]}
    return {**asked, "max_tokens": max_tokens, "ignore_eos": True, **common}


def raw_request(path: str, body: bytes) -> bytes:
    """For clients that behave as no library would."""
    lines = [f"POST {path} HTTP/1.1", "host: x", "content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Client:
    """One stream that a thread reads as it comes; acks and looks at it."""

    def __init__(self, url: str, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self._url, self._path, self._body, self._headers = url, path, body, headers or {}
        self._begun, self._left = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.chunks: list[str] = []
        self.is_complete = False

    def _read(self) -> None:
        with httpx.stream(
            "POST", f"{self._url}{self._path}", json=self._body, headers=self._headers, timeout=LIMIT_S
        ) as response:
            self.status, self.headers = response.status_code, response.headers
            self._begun.set()
            for line in response.iter_lines():
                if self._left.is_set():
                    return
                if line.startswith("data: "):
                    self.chunks.append(line.removeprefix("data: "))
        self.is_complete = True

    def __enter__(self) -> "Client":
        self._thread.start()
        assert self._begun.wait(LIMIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()

    def hang_up(self) -> None:
        self._left.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    @property
    def rid(self) -> str:
        return str(self.headers["x-tokenflow-request-id"])

    def ack(
        self, consumed_tokens: Any, rid: str | None = None, token: str | None = None, **more: Any
    ) -> httpx.Response:
        return httpx.post(
            f"{self._url}/tokenflow/v1/streams/{rid or self.rid}/ack",
            json={"consumed_tokens": consumed_tokens, **more},
            headers={"X-TokenFlow-Ack-Token": token or self.headers["x-tokenflow-ack-token"]},
            timeout=LIMIT_S,
        )

    def row(self) -> dict[str, Any]:
        return dict(
            httpx.get(
                f"{self._url}/tokenflow/v1/streams/{self.rid}",
                headers={"X-TokenFlow-Ack-Token": self.headers["x-tokenflow-ack-token"]},
                timeout=LIMIT_S,
            )
            .raise_for_status()
            .json()
        )


@contextmanager
def acking(client: Client, tok_s: float, begin_s: float) -> Iterator[None]:
    """Acks twice a second what a reader of that rate has read since `begin_s`, never more than has come."""
    is_over = threading.Event()
    failures: list[str] = []

    def run() -> None:
        while not is_over.wait(0.5):
            answer = client.ack(int((time.monotonic() - begin_s) * tok_s))
            if answer.status_code != 200:
                failures.append(answer.text)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(LIMIT_S)
    assert not failures


@contextmanager
def tuned(engine: Any, **changes: float) -> Iterator[None]:
    """The shared engine with other values, until it is left."""
    rows = {row["key"]: row["value"] for row in engine.json("tune")["tunables"]}
    assert engine.tfctl("tune", *(f"{key}={value}" for key, value in changes.items())).returncode == 0
    try:
        yield
    finally:
        assert engine.tfctl("tune", *(f"{key}={rows[key]}" for key in changes)).returncode == 0


def until(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, "not within the limit"
        time.sleep(0.1)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/generate"])
def test_every_route_takes_the_field_of_the_body(engine, path):
    body = body_of(path, 8, tokenflow={"rate": 17.5, "class": "listening"})
    with Client(engine.url, path, body, {"X-TokenFlow-Rate": "3"}) as client:
        until(lambda: client.is_complete)
    assert client.status == 200
    rows = engine.rows("--all").values()
    row = next(row for row in rows if client.rid in (row["rid"], row["parent_rid"]))
    assert (row["rate_tok_s"], row["rate_source"], row["class"]) == (17.5, "body", "listening")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/generate"])
@pytest.mark.parametrize("field", [{"rate": 0}, {"rate": "20"}, {"class": "nobody"}, {"speed": 3}, 20])
def test_a_bad_field_is_refused_in_openais_shape(engine, path, field):
    answer = httpx.post(f"{engine.url}{path}", json=body_of(path, 2, tokenflow=field), timeout=LIMIT_S)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("tokenflow")


def test_two_streams_show_their_real_rates(engine):
    """Both have claimed 10 tok/s; one is read at 3 and one at 30."""
    body = body_of("/v1/completions", 1200, tokenflow={"rate": 10})
    with ExitStack() as stack:
        fast, slow = (stack.enter_context(Client(engine.url, "/v1/completions", body)) for _ in range(2))
        until(lambda: min(len(fast.chunks), len(slow.chunks)) > 190)  # so that neither waits for the engine
        begin_s = time.monotonic()
        stack.enter_context(acking(fast, 30.0, begin_s))
        stack.enter_context(acking(slow, 3.0, begin_s))
        time.sleep(5.0)
        rows = engine.rows()
        assert (rows[fast.rid]["rate_source"], rows[slow.rid]["rate_source"]) == ("ack", "ack")
        assert rows[fast.rid]["rate_tok_s"] == pytest.approx(30.0, rel=0.1)
        assert rows[slow.rid]["rate_tok_s"] == pytest.approx(3.0, rel=0.1)
        own = slow.row()
        assert (own["rid"], own["class"]) == (slow.rid, "reading")
        assert own["consumed_tokens"] <= own["delivered_tokens"] <= own["generated_tokens"]

        # By its real rate the slow one has a minute of text: under contention it goes on, and those who are less far
        # ahead make room. In overload, which is ruled out here, the older would be served first.
        stack.enter_context(tuned(engine, overload_enter_ratio=2))
        others = body_of("/v1/completions", 60, tokenflow={"rate": 0.2})
        for _ in range(12):
            stack.enter_context(Client(engine.url, "/v1/completions", others))
        until(lambda: any(row["preemption_count"] for row in engine.rows().values()))
        rows = engine.rows()
        assert rows[slow.rid]["runway_s"] > 30.0
        assert rows[slow.rid]["preemption_count"] == 0


def test_forged_and_mad_acks_have_no_effect(engine):
    with Client(engine.url, "/v1/completions", body_of("/v1/completions", 900, tokenflow={"rate": 0.1})) as client:
        until(lambda: len(client.chunks) > 20)
        assert client.ack(10).status_code == 200
        assert client.ack(15, token="forged").status_code == 403
        assert client.ack(15, rid="tf-nobody").status_code == 404
        for bad in (-1, "15", None, 1.5, True, [], 2**70):
            assert client.ack(bad).status_code == 400
        assert client.ack(15, rate=0).status_code == 400
        assert client.ack(4, rate=500).json()["consumed_tokens"] == 10, "it is late"
        row = engine.row_when(client.rid, lambda row: row["consumed_tokens"] >= 10.0)
        assert (row["rate_tok_s"], row["rate_source"]) == (0.1, "body")
        assert row["consumed_tokens"] < 12.0
        answer = client.ack(10**9).json()
        assert answer["consumed_tokens"] == answer["delivered_tokens"]
        row = engine.row_when(client.rid, lambda row: row["consumed_tokens"] > 12.0)
        assert row["consumed_tokens"] <= row["delivered_tokens"]


def test_an_agent_has_no_runway_before_its_first_ack(engine):
    body = body_of("/v1/completions", 900, tokenflow={"class": "agent"})
    with Client(engine.url, "/v1/completions", body) as client:
        row = engine.row_when(client.rid, lambda row: row["delivered_tokens"] > 5)
        assert (row["class"], row["runway_s"], row["unread_tokens"]) == ("agent", None, None)
        client.ack(1)
        row = engine.row_when(client.rid, lambda row: row["runway_s"] is not None)
        assert row["unread_tokens"] > 0
        client.ack(2, **{"class": "listening"})
        engine.row_when(client.rid, lambda row: row["class"] == "listening")


def test_every_choice_is_a_stream_of_its_own(engine):
    body = body_of("/v1/chat/completions", 200, n=2, tokenflow={"rate": 5})
    with Client(engine.url, "/v1/chat/completions", body) as client:
        until(lambda: len(client.chunks) > 20)
        rids = {json.loads(chunk)["id"] for chunk in client.chunks[:20]}
        rows = {rid: row for rid, row in engine.rows().items() if row["parent_rid"] == client.rid}
        assert rids <= set(rows)
        assert len(rids) == 2
        assert client.ack(1).status_code == 409
        for rid in rids:
            assert client.ack(1, rid=rid).json()["rid"] == rid


def test_what_is_made_for_clients_that_hang_up_is_a_handful(engine):
    before = engine.status()["quality"]["zombie_tokens_total"]
    with ExitStack() as stack:
        body = body_of("/v1/completions", 800)
        clients = [stack.enter_context(Client(engine.url, "/v1/completions", body)) for _ in range(4)]
        until(lambda: all(len(client.chunks) > 10 for client in clients))
    for client in clients:
        row = engine.row_when(client.rid, lambda row: row["state"] == "aborted")
        assert row["generated_tokens"] < 800
    # SGLang by itself would wait two seconds first.
    assert engine.status()["quality"]["zombie_tokens_total"] - before <= 4 * 5


def test_a_client_that_hangs_up_before_its_first_token_is_noticed_too(engine):
    """With every slot taken it waits; stock SGLang looks every few seconds."""
    with ExitStack() as stack:
        body = body_of("/v1/completions", 400, tokenflow={"rate": 1000})
        for _ in range(8):
            stack.enter_context(Client(engine.url, "/v1/completions", body))
        before = set(engine.rows())
        address = urlsplit(engine.url)
        with socket.create_connection((address.hostname, address.port)) as waiting:
            raw = json.dumps({**body_of("/v1/completions", 400), "stream": False}).encode()
            waiting.sendall(raw_request("/v1/completions", raw))
            until(lambda: bool(set(engine.rows()) - before))
            [rid] = set(engine.rows()) - before
        engine.row_when(rid, lambda row: row["state"] == "aborted", 5.0)


def test_a_client_that_does_not_drain_is_runway_and_not_memory(own_engine):
    """Its backlog stays bounded and it is paused; somebody who reads beside it does not suffer."""
    own_engine.start_with_profile(clients={"max_backlog_tokens": 64})
    # SGLang's own route repeats the whole text in every chunk, so that the socket's buffers are soon full.
    body = json.dumps(body_of("/generate", 3500, tokenflow={"rate": 10})).encode()
    address = urlsplit(own_engine.url)
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(LIMIT_S)
        deaf.connect((address.hostname, address.port))
        deaf.sendall(raw_request("/generate", body))
        answer = deaf.recv(1024).decode()
        rid = next(line for line in answer.split("\r\n") if line.startswith("x-tokenflow-request-id")).split(": ")[1]
        row = own_engine.row_when(rid, lambda row: row["state"] == "preempted", 2 * LIMIT_S)
        assert row["reason"] == "preempted_surplus"
        backlog_tokens = row["generated_tokens"] - row["delivered_tokens"]
        assert 64 < backlog_tokens < 100
        reading = body_of("/v1/completions", 40, tokenflow={"rate": 1})
        with Client(own_engine.url, "/v1/completions", reading) as other:
            until(lambda: other.is_complete)
        still = own_engine.rows()[rid]
        assert still["generated_tokens"] == row["generated_tokens"], "nothing more was made for it"
        assert own_engine.row_when(other.rid, lambda row: row["state"] == "finished")["preemption_count"] == 0
    own_engine.row_when(rid, lambda row: row["state"] == "aborted")
    assert own_engine.status()["quality"]["zombie_tokens_total"] < 10


def test_hidden_reasoning_gives_no_runway(own_engine):
    """The demo model never ends its reasoning where a parser begins it for the model: nothing is ever visible."""
    own_engine.start("--reasoning-parser", "deepseek-r1")
    with Client(own_engine.url, "/v1/chat/completions", body_of("/v1/chat/completions", 30)) as client:
        until(lambda: client.is_complete)
    row = own_engine.row_when(client.rid, lambda row: row["state"] == "finished")
    assert row["hidden_tokens"] == 30
    assert (row["generated_tokens"], row["unread_tokens"], row["ttft_s"], row["stall_s"]) == (0, 0, None, 0.0)
    with Client(own_engine.url, "/v1/completions", body_of("/v1/completions", 30)) as client:
        until(lambda: client.is_complete)
    row = own_engine.row_when(client.rid, lambda row: row["state"] == "finished")
    assert (row["hidden_tokens"], row["generated_tokens"]) == (0, 30), "that route parses no reasoning"
