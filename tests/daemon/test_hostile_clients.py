"""Malformed, huge and slow HTTP on the control socket: whatever comes, the others are served."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_rig import Rig
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenflowd import connections, replies

_ANSWER_LIMIT_S = 10.0


@pytest.fixture(scope="module")
def control_socket() -> Iterator[Path]:
    """A daemon in a process of its own: what would end it, ends nothing else."""
    with tempfile.TemporaryDirectory(prefix="tff-") as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOKENFLOW_")}
        environment |= {f"XDG_{kind}": folder for kind in ("RUNTIME_DIR", "STATE_HOME", "CONFIG_HOME", "CACHE_HOME")}
        environment["TOKENFLOW_METRICS_LISTEN"] = ""
        path = Path(folder) / "control.sock"
        command = [sys.executable, "-m", "tokenflowd.main", "--socket", str(path)]
        log = (Path(folder) / "log").open("w")
        with log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as daemon:
            try:
                wait_for(path, daemon)
                yield path
                assert daemon.poll() is None, (Path(folder) / "log").read_text()
                assert "Traceback" not in (Path(folder) / "log").read_text()
            finally:
                daemon.terminate()


def wait_for(path: Path, daemon: "subprocess.Popen[bytes]") -> None:
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s and daemon.poll() is None:
        with contextlib.suppress(OSError), connected(path):
            return
        time.sleep(0.05)
    raise AssertionError("the daemon did not come up")


@contextlib.contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_LIMIT_S)
        connection.connect(str(path))
        yield connection


def exchange(path: Path, sent: bytes, silence_s: float = _ANSWER_LIMIT_S) -> bytes:
    """What comes back until the daemon closes, or is silent for so long."""
    with connected(path) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        connection.settimeout(silence_s)
        with contextlib.suppress(ConnectionError, TimeoutError):
            while data := connection.recv(65536):
                answer += data
        return answer


def still_serves(path: Path) -> None:
    answer = exchange(path, b"GET /v1 HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert json.loads(body)["schema"] == "tokenflow.version/1"


METHODS = st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "FOO", ""])
PATHS = st.sampled_from(
    ["/v1/status", "/v1/tunables", "/v1/engine/stop", "/v1/requests?limit=-1", "/v1/events?n=1e9", "/v1/logs?n=x", "//"]
) | st.text(max_size=60)
HEADERS = st.lists(st.tuples(st.text(max_size=20), st.text(max_size=60)), max_size=5)
BODIES = st.binary(max_size=300) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
).map(lambda value: json.dumps(value).encode())


@st.composite
def nearly_http(draw) -> bytes:
    """Requests with one thing or another wrong: lengths that lie, chunks that end nowhere, headers of rubbish."""
    body = draw(BODIES)
    length = draw(st.sampled_from([len(body), len(body) + 1, 0, -1, 10**12]) | st.text(max_size=5))
    framing = draw(st.sampled_from([f"Content-Length: {length}", "Transfer-Encoding: chunked", "Expect: 100-continue"]))
    headers = "".join(f"{name}: {value}\r\n" for name, value in draw(HEADERS))
    version = draw(st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9", ""]))
    head = f"{draw(METHODS)} {draw(PATHS)} {version}\r\nHost: d\r\n{headers}{framing}\r\n\r\n"
    return head.encode("utf-8", "surrogatepass") + body


@given(nearly_http() | st.binary(max_size=500))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rubbish_is_answered_in_http_or_not_at_all(control_socket, sent):
    answer = exchange(control_socket, sent, 0.02)
    assert answer == b"" or answer.startswith(b"HTTP/"), answer[:80]
    assert b"Traceback" not in answer
    still_serves(control_socket)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /v1 HTTP/1.1\r\nX: " + b"a" * (4 << 20) + b"\r\n\r\n", b"400"),
        (b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n", b"400"),
        (b"PATCH /v1/tunables HTTP/1.1\r\nHost: d\r\nContent-Length: 3000000\r\n\r\n" + b"[" * 3_000_000, b"413"),
        (b"PATCH /v1/tunables HTTP/1.1\r\nHost: d\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100_000, b"400"),
    ],
    ids=["header", "path", "body", "nesting"],
)
def test_huge_requests_are_refused(control_socket, sent, status):
    answer = exchange(control_socket, sent, 2.0)
    assert answer == b"" or answer.split(b" ")[1] == status
    still_serves(control_socket)


async def ask(path: Path) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(b"GET /v1 HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


async def test_connections_that_never_ask_are_closed_and_hold_nobody_up(rig: Rig, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_LIMIT_S", 0.5)
    path = rig.daemon.paths.socket
    idle = [await asyncio.open_unix_connection(str(path)) for _ in range(100)]
    for _, writer in idle:
        writer.write(b"GET /v1/status HTTP/1.1\r\nHost: d\r\nX-Slow: ")
    assert (await ask(path)).startswith(b"HTTP/1.1 200 ")
    async with asyncio.timeout(20):
        for reader, writer in idle:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
    assert (await ask(path)).startswith(b"HTTP/1.1 200 ")


async def test_a_head_that_comes_in_pieces_is_served(rig: Rig):
    reader, writer = await asyncio.open_unix_connection(str(rig.daemon.paths.socket))
    for byte in b"GET /v1 HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n":
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_a_body_that_does_not_come_is_given_up(rig: Rig, monkeypatch):
    monkeypatch.setattr(replies, "_BODY_LIMIT_S", 0.2)
    reader, writer = await asyncio.open_unix_connection(str(rig.daemon.paths.socket))
    writer.write(b"POST /v1/engine/start HTTP/1.1\r\nHost: d\r\nContent-Length: 50\r\n\r\n{")
    async with asyncio.timeout(20):
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 400 ")
    writer.close()
    assert (await rig.client.get("/v1/status"))["engine"]["state"] == "stopped"


async def test_one_user_s_connections_are_bounded(rig: Rig, monkeypatch):
    monkeypatch.setattr(connections, "MOST_PER_USER", 5)
    path = rig.daemon.paths.socket
    held = [await asyncio.open_unix_connection(str(path)) for _ in range(5)]
    reader, writer = await asyncio.open_unix_connection(str(path))
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    for _, open_writer in held:
        open_writer.close()
        await open_writer.wait_closed()
    async with asyncio.timeout(20):
        while not (await ask_or_nothing(path)).startswith(b"HTTP/1.1 200 "):
            await asyncio.sleep(0.01)


async def ask_or_nothing(path: Path) -> bytes:
    try:
        return await ask(path)
    except ConnectionError:
        return b""
