"""An OpenAI-compatible server in a thread of its own: streams tokens at a known pace, refuses, or knows no models."""

import asyncio
import json
import threading
from concurrent.futures import Future

from aiohttp import web

PROMPT_TOKENS = 7


class StandIn:
    """Serves while it is entered. Each token takes `token_s`; every `fail_every`-th request is refused with 503.

    `stops_after` tokens a stream goes silent until the server ends. With `has_acks` it gives ack tokens and keeps
    what is acked in `acks`, by rid. `bodies` and `headers` are those of the streams it was asked for.
    """

    def __init__(
        self,
        *,
        token_s: float = 0.01,
        fail_every: int | None = None,
        stops_after: int | None = None,
        has_models: bool = True,
        has_acks: bool = False,
        key: str | None = None,
    ) -> None:
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.acks: dict[str, list[dict]] = {}
        self.has_token = threading.Event()  # some token was sent
        self.gone_count = 0  # clients that left in mid-stream
        self._token_s, self._fail_every, self._stops_after = token_s, fail_every, stops_after
        self._has_models, self._has_acks, self._key = has_models, has_acks, key

    def __enter__(self) -> "StandIn":
        self._ready: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._thread.start()
        self.url = self._ready.result(timeout=30)
        return self

    def __exit__(self, *error) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(timeout=30)

    async def _main(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(middlewares=[self._guard])
        app.router.add_post("/v1/chat/completions", self._stream)
        app.router.add_post("/v1/completions", self._stream)
        app.router.add_post("/tokenflow/v1/streams/{rid}/ack", self._ack)
        if self._has_models:
            app.router.add_get("/v1/models", self._models)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._ready.set_result(site.name)
        await self._over.wait()
        await runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler) -> web.StreamResponse:
        if self._key is not None and request.headers.get("Authorization") != f"Bearer {self._key}":
            return web.json_response({"error": {"message": "no key"}}, status=401)
        return await handler(request)

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "toy"}, {"id": "other"}]})

    async def _ack(self, request: web.Request) -> web.Response:
        rid = request.match_info["rid"]
        if request.headers.get("X-TokenFlow-Ack-Token") != f"secret-{rid}":
            return web.json_response({"error": {"message": "wrong token"}}, status=403)
        self.acks.setdefault(rid, []).append(await request.json())
        return web.json_response({})

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        if self._fail_every is not None and len(self.bodies) % self._fail_every == 0:
            return web.json_response({"error": {"message": "admission is closed"}}, status=503)
        rid = f"tf-{len(self.bodies)}"
        response = web.StreamResponse(headers={"X-TokenFlow-Request-Id": rid, "Content-Type": "text/event-stream"})
        if self._has_acks:
            response.headers["X-TokenFlow-Ack-Token"] = f"secret-{rid}"
        await response.prepare(request)
        try:
            await self._write_tokens(response, body.get("max_tokens") or body["max_completion_tokens"])
        except asyncio.CancelledError:
            self.gone_count += 1
            raise
        except ConnectionAbortedError:
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _write_tokens(self, response: web.StreamResponse, count: int) -> None:
        for number in range(1, count + 1):
            await asyncio.sleep(self._token_s)
            if self._stops_after is not None and number > self._stops_after:
                await self._over.wait()
                raise ConnectionAbortedError
            text = f"w{number} "
            usage = {"completion_tokens": number, "prompt_tokens": PROMPT_TOKENS}
            chunk = {"choices": [{"delta": {"content": text}, "text": text}], "usage": usage}
            if number == count:
                chunk["choices"][0]["finish_reason"] = "length"
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.has_token.set()
