"""What a client writes and what it gets is between it and the engine: nothing of it is told to operators."""

import http.client
import json
import socket
import time
import urllib.request
from pathlib import Path

import pytest
import zmq
from engine_rig import Rig

from tokenflow import link

pytestmark = pytest.mark.engine
PROMPT = "zanzibarquux is my secret, and nobody else's"
WORD = "zanzibarquux"
PATHS = (
    "/v1/status",
    "/v1/requests?all=1",
    "/v1/events?n=1000",
    "/v1/tunables",
    "/v1/logs?n=100000",
    "/metrics",
)


def asked(rig: Rig) -> tuple[str, str]:
    """Streams one answer; its id and its text."""
    body = {"model": "x", "stream": True, "max_tokens": 24, "ignore_eos": True, "temperature": 0, "user": WORD}
    body["messages"] = [{"role": "user", "content": PROMPT}]
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{rig.url}/v1/chat/completions", json.dumps(body).encode(), headers)
    text = ""
    with urllib.request.urlopen(request, timeout=120) as answer:
        rid = answer.headers["X-TokenFlow-Request-Id"]
        for line in answer:
            if line.startswith(b"data: {"):
                choices = json.loads(line[6:])["choices"]
                text += (choices[0]["delta"].get("content") or "") if choices else ""
    return rid, text


def told(rig: Rig, path: str) -> str:
    connection = http.client.HTTPConnection("daemon", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(rig.status()["daemon"]["socket"])
    connection.request("GET", path)
    answer = connection.getresponse().read().decode(errors="replace")
    connection.close()
    return answer


def test_no_text_of_a_request_crosses_the_link_or_the_control_socket(engine: Rig):
    (folder,) = engine.runtime.glob("tokenflow/link-*")
    context = zmq.Context()
    telemetry = context.socket(zmq.SUB)
    telemetry.setsockopt(zmq.SUBSCRIBE, b"")
    telemetry.connect(f"ipc://{folder / link.TELEMETRY_SOCKET}")
    assert telemetry.poll(30_000), "the engine speaks"
    try:
        rid, text = asked(engine)
        assert len(text) >= 12
        messages = b""
        until_s = time.monotonic() + 3.0  # what was told meanwhile, and the end
        while time.monotonic() < until_s and telemetry.poll(3_000):
            messages += telemetry.recv()
    finally:
        context.destroy(linger=0)
    assert rid.encode() in messages, "it was told of"
    documents = {path: told(engine, path) for path in PATHS}
    assert rid in documents["/v1/requests?all=1"]
    logs = [path.read_text(errors="replace") for path in Path(engine.folder).rglob("*.log*") if path.is_file()]
    for said in (messages.decode(errors="replace"), *documents.values(), *logs):
        assert WORD not in said
        assert text[:12] not in said
