"""Both middlewares in a real HTTP server, with real sockets, in front of a scripted tokenizer manager."""

import asyncio
import contextlib
import json
import socket
from types import SimpleNamespace

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, StreamingResponse
from frontend_rig import Reports
from starlette.middleware import Middleware

from tokenflow.sglang import client_watch, settings
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.frontend import Frontend
from tokenflow.sglang.middleware import TokenFlowMiddleware
from tokenflow.sglang.reader_middleware import ReaderMiddleware
from tokenflow.sglang.settings import SlowClient
from tokenflow.sglang.tokenizer_hooks import TokenizerHooks

LIMIT_S = 20.0


class Manager:
    """Makes tokens until it is told to abort; keeps what SGLang's manager would keep of them."""

    def __init__(self, hooks: TokenizerHooks, pace_s: float) -> None:
        self._hooks = hooks
        self._pace_s = pace_s
        self.rid_to_state: dict[str, SimpleNamespace] = {}
        self.aborted: list[str] = []
        self.seen: list[object] = []

    def abort_request(self, rid: str) -> None:
        self.aborted.append(rid)
        self.rid_to_state[rid].finished = True

    async def generate(self, obj, request):
        sampling_params = SimpleNamespace(custom_params=None)
        tokenized = SimpleNamespace(rid=obj.rid, stream=obj.stream, sampling_params=sampling_params)
        self._hooks.before_send_one(self, tokenized)
        self.seen.append(sampling_params.custom_params)
        state = self.rid_to_state[obj.rid] = SimpleNamespace(finished=False, out_list=[])
        maker = asyncio.create_task(self._make(obj.rid, state))
        try:
            while not (state.finished and not state.out_list):
                await asyncio.sleep(self._pace_s)
                if state.out_list:
                    out, state.out_list = state.out_list[-1], []
                    yield out
        finally:
            maker.cancel()

    async def _make(self, rid, state):
        count = 0
        while not state.finished:
            count += 1
            state.out_list.append({"meta_info": {"id": rid, "completion_tokens": count}})
            await asyncio.sleep(self._pace_s)


class Server:
    """A server of its own on a free port, and the parts behind it."""

    def __init__(self, pad_bytes: int = 0, pace_s: float = 0.01) -> None:
        self.frontend = Frontend(settings.load(), FaultGuard(), Reports(), None)
        self.hooks = TokenizerHooks(self.frontend)
        self.manager = Manager(self.hooks, pace_s)
        self.pad = "x" * pad_bytes
        self.app = FastAPI()
        self.app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"])
        self.app.add_middleware(TokenFlowMiddleware, frontend=self.frontend, is_ready=lambda: True)
        self.app.user_middleware.append(Middleware(ReaderMiddleware, frontend=self.frontend))
        self.app.post("/v1/completions")(self.complete)

    async def complete(self, request: Request):
        body = await request.json()
        obj = SimpleNamespace(stream=body.get("stream", False), rid=None, text="x", sampling_params={})
        outputs = self.hooks.around_generate(
            lambda _, obj, request: self.manager.generate(obj, request), self.manager, obj
        )

        async def events():
            async for out in outputs:
                yield f"data: {out['meta_info']['completion_tokens']} {self.pad}\n\n"
            yield "data: [DONE]\n\n"

        if obj.stream:
            return StreamingResponse(events(), media_type="text/event-stream")
        async for out in outputs:
            last = out
        return JSONResponse(last)

    @contextlib.asynccontextmanager
    async def running(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(self.app, log_level="error", timeout_graceful_shutdown=1))
        task = asyncio.create_task(server.serve([listener]))
        await until(lambda: server.started)
        try:
            yield self
        finally:
            server.should_exit = True
            for stream in list(self.frontend.book.open):
                if stream.task is not None:
                    stream.task.cancel()
            await asyncio.wait_for(task, LIMIT_S)
            listener.close()

    async def connect(self, body, path="/v1/completions", method="POST", **headers):
        """A connection on which the request has been sent, and the response's head."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**16)
        raw = json.dumps(body).encode()
        named = {"content-type": "application/json", "content-length": str(len(raw)), **headers}
        lines = [f"{method} {path} HTTP/1.1", "host: x", *(f"{n.replace('_', '-')}: {v}" for n, v in named.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + raw)
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LIMIT_S)).decode().split("\r\n")
        answer = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        return reader, writer, int(head[0].split()[1]), answer

    @property
    def reports(self):
        return self.frontend.reporter


async def until(condition) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


STREAMED = {"stream": True, "tokenflow": {"rate": 20, "class": "agent"}}


async def test_the_body_names_the_reader_and_an_ack_comes_back_to_it():
    async with Server().running() as server:
        reader, writer, status, headers = await server.connect(STREAMED, origin="http://page.example")
        assert status == 200
        assert headers["cache-control"] == "no-cache"
        assert headers["access-control-expose-headers"] == "X-TokenFlow-Request-Id, X-TokenFlow-Ack-Token"
        await reader.readuntil(b"data: 3 ")
        await until(lambda: server.reports.deliveries)
        [carried] = server.manager.seen
        assert carried["__tokenflow"][:3] == ["agent", 20.0, "body"]
        path = f"/tokenflow/v1/streams/{headers['x-tokenflow-request-id']}/ack"
        mine = {"x_tokenflow_ack_token": headers["x-tokenflow-ack-token"], "origin": "http://page.example"}
        _, acking, status, answered = await server.connect({"consumed_tokens": 2}, path, **mine)
        assert status == 200
        assert answered["access-control-allow-origin"] in ("*", "http://page.example"), "a page may read the answer"
        assert [ack.consumed_tokens for ack in server.reports.acks] == [2]
        for open_one in (writer, acking):
            open_one.close()


async def test_a_bad_field_is_a_400_that_sglang_never_sees():
    async with Server().running() as server:
        reader, writer, status, headers = await server.connect({"stream": True, "tokenflow": {"rate": 0}})
        error = json.loads(await reader.readexactly(int(headers["content-length"])))["error"]
        assert (status, error["param"], error["code"]) == (400, "tokenflow.rate", "invalid_value")
        assert server.manager.seen == []
        writer.close()


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_client_that_hangs_up_is_aborted_at_once(is_streamed):
    async with Server().running() as server:
        if is_streamed:
            _, writer, _, _ = await server.connect(STREAMED)
        else:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        await until(lambda: server.manager.rid_to_state)
        [rid] = server.manager.rid_to_state
        writer.close()
        await until(lambda: server.manager.aborted)
        assert server.manager.aborted == [rid]
        last = server.reports.deliveries[-1]
        assert (last.rid, last.is_closed, last.is_disconnect) == (rid, True, True)
        assert server.reports.flush_count, "the scheduler hears of it at once"
        assert not server.frontend.book.open


async def test_a_complete_response_is_nobody_who_left():
    async with Server().running() as server:
        reader, writer, _, _ = await server.connect(STREAMED)
        [state] = server.manager.rid_to_state.values()
        state.finished = True
        await asyncio.wait_for(reader.readuntil(b"[DONE]"), LIMIT_S)
        await until(lambda: not server.frontend.book.open)
        writer.close()
        await asyncio.sleep(0.1)
        assert server.manager.aborted == []
        assert not any(delivery.is_disconnect for delivery in server.reports.deliveries)


async def test_a_client_that_does_not_drain_is_told_of_and_comes_back(monkeypatch):
    monkeypatch.setattr(client_watch, "LOOK_S", 0.05)
    async with Server(pad_bytes=60_000, pace_s=0.005).running() as server:
        reader, writer, _, _ = await server.connect(STREAMED)
        reader._transport.pause_reading()
        await until(lambda: any(delivery.is_blocked for delivery in server.reports.deliveries))
        sent = server.reports.deliveries[-1].delivered_tokens
        await asyncio.sleep(0.2)
        assert server.reports.deliveries[-1].delivered_tokens == sent, "it takes no more"
        reader._transport.resume_reading()
        drain = asyncio.create_task(_read_on(reader))
        await until(lambda: not server.reports.deliveries[-1].is_blocked)
        await until(lambda: server.reports.deliveries[-1].delivered_tokens > sent)
        drain.cancel()
        writer.close()


async def test_a_client_that_does_not_drain_is_aborted_where_the_setting_says_so(monkeypatch):
    monkeypatch.setattr(client_watch, "LOOK_S", 0.05)
    server = Server(pad_bytes=60_000, pace_s=0.005)
    server.frontend.settings.slow_client = SlowClient.ABORT
    server.frontend.settings.max_backlog_tokens = 20
    async with server.running():
        reader, writer, _, _ = await server.connect(STREAMED)
        reader._transport.pause_reading()
        await until(lambda: server.manager.aborted)
        assert len(server.manager.aborted) == 1
        writer.close()


async def _read_on(reader: asyncio.StreamReader) -> None:
    while await reader.read(2**16):
        pass
