"""A scripted OpenAI-compatible server: slow, cut, failing, refusing and malformed streams."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web


class ScriptedServer:
    """Answers each request as its prompt says, or as `default`; keeps what it was sent."""

    def __init__(self) -> None:
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.default = "whole"
        self.cancelled_count = 0
        self.streaming = asyncio.Event()
        self.go_on = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        prompt = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
        if prompt == "refuse":
            return web.json_response({"error": {"message": "admission is closed"}}, status=503)
        if prompt == "refuse in text":
            return web.Response(text="bad gateway\nmore", status=502)
        script = prompt if hasattr(self, prompt) else self.default
        response = web.StreamResponse(headers={"X-TokenFlow-Request-Id": f"rid-{script}"})
        await response.prepare(request)
        try:
            await getattr(self, script)(request, response)
        except asyncio.CancelledError:
            self.cancelled_count += 1
            raise
        return response

    async def whole(self, request: web.Request, response: web.StreamResponse) -> None:
        await say(response, {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for total, text in ((1, "Hel"), (3, "lo ü")):
            await say(response, {"choices": [{"delta": {"content": text}}], "usage": {"completion_tokens": total}})
        await say(response, {"choices": [{"delta": {}, "finish_reason": "stop"}]})
        await say(response, {"choices": [], "usage": {"completion_tokens": 4, "prompt_tokens": 2}})
        await response.write(b"data: [DONE]\n\n")

    async def lingering(self, request: web.Request, response: web.StreamResponse) -> None:
        """The end of the response comes a moment after [DONE]: a client that hangs up before cancels this."""
        await say(response, {"choices": [{"text": "a", "finish_reason": "stop"}]})
        await response.write(b"data: [DONE]\n\n")
        await asyncio.sleep(0.1)

    async def bytewise(self, request: web.Request, response: web.StreamResponse) -> None:
        for byte in 'data: {"choices":[{"text":"ü€"}]}\r\n\r\ndata: [DONE]\r\n\r\n'.encode():
            await response.write(bytes([byte]))
            await asyncio.sleep(0)

    async def held(self, request: web.Request, response: web.StreamResponse) -> None:
        """One token, then nothing until the test says so."""
        await say(response, {"choices": [{"text": "a"}]})
        self.streaming.set()
        await self.go_on.wait()
        await say(response, {"choices": [{"text": "b", "finish_reason": "length"}]})
        await response.write(b"data: [DONE]\n\n")

    async def cut(self, request: web.Request, response: web.StreamResponse) -> None:
        await say(response, {"choices": [{"text": "a"}]})
        assert request.transport is not None
        request.transport.abort()

    async def undone(self, request: web.Request, response: web.StreamResponse) -> None:
        await say(response, {"choices": [{"text": "a"}]})

    async def failing(self, request: web.Request, response: web.StreamResponse) -> None:
        await say(response, {"choices": [{"text": "a"}]})
        await say(response, {"error": {"message": "the engine was stopped", "code": 503}})
        await response.write(b"data: [DONE]\n\n")

    async def malformed(self, request: web.Request, response: web.StreamResponse) -> None:
        await say(response, {"choices": [{"text": "a"}]})
        await response.write(b"data: {oops\n\n")

    async def aborted(self, request: web.Request, response: web.StreamResponse) -> None:
        await say(response, {"choices": [{"text": "a", "finish_reason": "abort"}]})
        await response.write(b"data: [DONE]\n\n")


async def say(response: web.StreamResponse, document: dict) -> None:
    await response.write(f"data: {json.dumps(document)}\n\n".encode())


@contextlib.asynccontextmanager
async def serving(server: ScriptedServer) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.answer)
    app.router.add_post("/v1/completions", server.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield site.name
    finally:
        await runner.cleanup()


@pytest.fixture
def serve():
    """Serves a scripted server for as long as the context lasts; gives its address."""
    return serving


@pytest.fixture
async def server() -> AsyncIterator[tuple[ScriptedServer, str]]:
    scripted = ScriptedServer()
    async with serving(scripted) as url:
        yield scripted, url
