"""The control API: documents, errors, streams."""

import asyncio
import json
import socket

import msgspec
import pytest
from daemon_rig import Rig, run_daemon

from tokenflow import wire
from tokenflow.version import __version__


async def test_version(rig: Rig):
    async with rig.client.session.get("http://daemon/v1") as response:
        assert response.headers["TokenFlow-Version"] == __version__
        assert response.headers["TokenFlow-Api"] == wire.API_VERSION
        document = msgspec.json.decode(await response.read(), type=wire.VersionDocument)
    assert (document.schema, document.daemon) == ("tokenflow.version/1", __version__)


async def test_status_without_an_engine(rig: Rig):
    async with rig.client.session.get("http://daemon/v1/status") as response:
        document = msgspec.json.decode(await response.read(), type=wire.StatusDocument)
    assert document.schema == "tokenflow.status/1"
    assert document.generated_at.endswith("Z")
    assert document.engine.state is wire.EngineState.STOPPED
    assert document.daemon is not None
    assert document.daemon.socket == str(rig.daemon.paths.socket)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v1/nothing", None, 404, "not_found"),
        ("DELETE", "/v1/status", None, 405, "usage"),
        ("GET", "/v1/operations/none", None, 404, "not_found"),
        ("GET", "/v1/status?watch=soon", None, 400, "usage"),
        ("GET", "/v1/status?watch=nan", None, 400, "usage"),
        ("GET", "/v1/status?watch=0", None, 400, "usage"),
        ("GET", "/v1/requests?sort=beauty", None, 400, "usage"),
        ("GET", "/v1/requests?state=asleep", None, 400, "usage"),
        ("GET", "/v1/requests?limit=-1", None, 400, "usage"),
        ("GET", "/v1/requests?all=perhaps", None, 400, "usage"),
        ("GET", "/v1/logs?n=many", None, 400, "usage"),
        ("POST", "/v1/engine/start", {"profil": "x"}, 400, "usage"),
        ("POST", "/v1/engine/start", {"profile": "none"}, 404, "profile_not_found"),
        ("POST", "/v1/engine/start", {"profile": "../../etc/passwd"}, 404, "profile_not_found"),
        ("POST", "/v1/engine/start", {"profile": "scripted", "engine_args": ["--port", "-1"]}, 400, "usage"),
        ("POST", "/v1/engine/start", {"profile": "scripted", "engine_args": ["--port=70000"]}, 400, "usage"),
        ("POST", "/v1/engine/stop", {"drain_s": -1}, 400, "usage"),
        ("POST", "/v1/engine/stop", {"drain_s": "long"}, 400, "usage"),
        ("PUT", "/v1/mode", {"mode": "loud"}, 400, "usage"),
        ("PUT", "/v1/mode", {"mode": "off"}, 409, "conflict"),
    ],
)
async def test_every_refusal_is_an_error_document(rig: Rig, method, path, body, status, code):
    found_status, document = await rig.client.ask(method, path, body)
    assert (found_status, document["error"]["code"]) == (status, code)
    assert document["schema"] == "tokenflow.error/1"
    assert document["error"]["hint"]


async def test_a_body_that_is_no_json_is_refused(rig: Rig):
    async with rig.client.session.post("http://daemon/v1/engine/start", data=b"{profile}") as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == "usage"


@pytest.mark.parametrize("header", ["Origin", "Referer"])
async def test_browsers_are_refused(rig: Rig, header: str):
    status, document = await rig.client.ask("POST", "/v1/shutdown", **{header: "http://evil.test"})
    assert (status, document["error"]["code"]) == (403, "permission_denied")
    assert (await rig.client.get("/v1"))["daemon"] == __version__


async def test_requests_are_sorted_filtered_and_limited(rig: Rig):
    await rig.client.start()
    live = await rig.client.get("/v1/requests")
    assert [row["rid"] for row in live["requests"]] == ["rid-1", "rid-2", "rid-3"]  # by runway, least first
    assert live["total_count"] == 3
    turned = await rig.client.get("/v1/requests?sort=-runway_s&limit=1")
    assert ([row["rid"] for row in turned["requests"]], turned["total_count"]) == (["rid-3"], 3)
    finished = await rig.client.get("/v1/requests?state=finished")
    assert [row["rid"] for row in finished["requests"]] == ["rid-0"]
    assert (await rig.client.get("/v1/requests?all=1"))["total_count"] == 4
    row = live["requests"][0]
    assert row["class"] == "reading"
    assert row["runway_s"] == pytest.approx(row["unread_tokens"] / row["rate_tok_s"], abs=1 / row["rate_tok_s"])


async def test_mode_is_read_and_set(rig: Rig):
    await rig.client.start()
    assert (await rig.client.get("/v1/mode"))["mode"] == "observe"
    status, changed = await rig.client.ask("PUT", "/v1/mode", {"mode": "off"})
    assert (status, changed["mode"], changed["revision"]) == (200, "off", 1)
    assert (await rig.client.get("/v1/status"))["policy"]["mode"] == "off"
    status, refusal = await rig.client.ask("PUT", "/v1/mode", {"mode": "enforce"})
    assert (status, refusal["error"]["code"]) == (501, "unsupported")
    assert (await rig.client.get("/v1/mode"))["mode"] == "off"


async def test_logs_follow_survives_the_turn_of_the_file(rig: Rig):
    await rig.client.start()
    some = (await log_lines(rig, "n=2", 2))[-1]
    assert some.startswith("settings ")
    async with rig.client.session.get("http://daemon/v1/logs?n=1&follow=1") as response:
        first = json.loads(await response.content.readline())["line"]
        assert first == some
        await rig.client.stop()
        await rig.client.start("other")
        async with asyncio.timeout(10):
            lines = [json.loads(await response.content.readline())["line"]]
            while not lines[-1].startswith("settings "):
                lines.append(json.loads(await response.content.readline())["line"])
    assert "admission closed" in lines
    assert lines[-1] != first  # the next engine's, in the next file


async def log_lines(rig: Rig, query: str, count: int) -> list[str]:
    async with rig.client.session.get(f"http://daemon/v1/logs?{query}") as response:
        lines = [json.loads(line)["line"] async for line in response.content]
    assert len(lines) == count
    return lines


async def test_watching_is_ndjson(rig: Rig):
    async with rig.client.session.get("http://daemon/v1/requests?watch=0.1") as response:
        assert response.content_type == "application/x-ndjson"
        for _ in range(3):
            document = json.loads(await response.content.readline())
            assert document["schema"] == "tokenflow.requests/1"


async def test_a_slow_watcher_holds_nobody_up(rig: Rig):
    await rig.client.start()
    slow = socket.socket(socket.AF_UNIX)
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(str(rig.daemon.paths.socket))
    slow.sendall(b"GET /v1/status?watch=0.1 HTTP/1.1\r\nHost: daemon\r\n\r\n")  # and never reads
    async with (
        asyncio.timeout(10),
        rig.client.session.get("http://daemon/v1/status?watch=0.1") as quick,
    ):
        for _ in range(20):
            json.loads(await quick.content.readline())
    slow.close()


async def test_watchers_do_not_keep_the_daemon_from_ending(rig: Rig):
    async with (
        rig.client.session.get("http://daemon/v1/status?watch=3600") as status,
        rig.client.session.get("http://daemon/v1/logs?follow=1") as logs,
    ):
        await status.content.readline()
        await rig.client.ask("POST", "/v1/shutdown")
        await rig.ended()
        assert await status.content.read() == b"" or status.content.at_eof()
        assert await logs.content.read() == b""
    assert not rig.daemon.paths.socket.exists()


async def test_shutdown_ends_engine_and_daemon(rig: Rig):
    await rig.client.start()
    status, operation = await rig.client.ask("POST", "/v1/shutdown")
    assert (status, operation["kind"]) == (202, "stop")
    assert (await rig.client.finished(operation))["state"] == "done"
    await rig.ended()
    assert not rig.daemon.paths.lock.exists()


async def test_stop_with_daemon_ends_any_daemon(rig: Rig):
    assert (await rig.client.stop(daemon=True))["state"] == "done"
    await rig.ended()


async def test_an_on_demand_daemon_ends_after_a_stop_but_not_after_a_failure(home):
    async with run_daemon(on_demand=True) as rig:
        assert (await rig.client.get("/v1/status"))["daemon"]["on_demand"] is True
        assert (await rig.client.start("scripted", "--script", "exit=1"))["state"] == "failed"
        await rig.client.start()
        assert (await rig.client.stop())["state"] == "done"
        await rig.ended()
        assert not rig.daemon.paths.socket.exists()


async def test_a_start_takes_back_the_end_of_an_on_demand_daemon(home):
    async with run_daemon(on_demand=True, farewell_s=30.0) as rig:
        await rig.client.start()
        _, stop = await rig.client.ask("POST", "/v1/engine/stop", {})
        engine_free = asyncio.create_task(rig.client.engine_becomes("stopped"))
        await engine_free
        assert (await rig.client.start())["state"] == "done"
        assert (await rig.client.finished(stop))["state"] == "done"
        assert (await rig.client.get("/v1/status"))["engine"]["state"] == "serving"


async def test_a_watcher_that_leaves_is_forgotten(rig: Rig):
    before = len(asyncio.all_tasks())
    with pytest.raises(TimeoutError):
        await read_for(rig, 0.2)
    async with asyncio.timeout(5):
        while len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0.05)


async def read_for(rig: Rig, limit_s: float) -> None:
    async with (
        asyncio.timeout(limit_s),
        rig.client.session.get("http://daemon/v1/status?watch=3600") as response,
    ):
        while True:
            await response.content.readline()
