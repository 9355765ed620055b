"""The ASGI middleware in front of SGLang's HTTP server: who reads, what was sent, and an orderly end.

It never reads or rewrites a body. Written as plain ASGI, so that streams pass through it chunk by chunk.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tokenflow.sglang.frontend import Frontend, is_engine_ready
from tokenflow.sglang.readers import BadReaderError, reader_of
from tokenflow.sglang.streams import StreamContext, current_stream, mint_rid

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

REQUEST_ID_HEADER = b"x-tokenflow-request-id"
GENERATION_PATHS = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/generate",
        "/api/chat",
        "/api/generate",
        "/invocations",
        "/vertex_generate",
    }
)
OWN_RID_PATHS = frozenset({"/v1/responses"})


class TokenFlowMiddleware:
    """Wraps generation routes; everything else passes untouched."""

    def __init__(self, app: App, frontend: Frontend, is_ready: Callable[[], bool] = is_engine_ready) -> None:
        self._app = app
        self._frontend = frontend
        self._is_ready = is_ready

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        is_generation = scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in GENERATION_PATHS
        if is_generation and not self._frontend.is_admission_open:
            await _send_error(send, 503, "server_error", "engine_stopping", None, "the engine is being stopped")
            return
        if not is_generation or self._frontend.guard.is_tripped:
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            reader = reader_of(headers, self._frontend.settings)
        except BadReaderError as error:
            await _send_error(send, 400, "invalid_request_error", "invalid_value", error.parameter, str(error))
            return
        stream = StreamContext(mint_rid(), reader, time.monotonic(), asyncio.current_task())
        stream.is_warm_up = not self._is_ready()
        stream.route_mints_rid = scope["path"] in OWN_RID_PATHS
        await _Response(self._app, self._frontend, stream, send).run(scope, receive)


class _Response:
    """One generation response on its way out."""

    def __init__(self, app: App, frontend: Frontend, stream: StreamContext, send: Send) -> None:
        self._app = app
        self._frontend = frontend
        self._stream = stream
        self._send = send
        self._is_started = False
        self._is_event_stream = False
        self._is_complete = False

    async def run(self, scope: Message, receive: Receive) -> None:
        token = current_stream.set(self._stream)
        self._frontend.open_stream(self._stream)
        try:
            await self._app(scope, self._receiver(receive), self._forward)
        except asyncio.CancelledError:
            if self._stream.cut_message is None:
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            await self._end_with_error(self._stream.cut_message)
        finally:
            self._frontend.close_stream(self._stream)
            current_stream.reset(token)

    def _receiver(self, receive: Receive) -> Receive:
        async def receive_and_watch() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not self._is_complete:
                self._stream.is_disconnected = True
            return message

        return receive_and_watch

    async def _forward(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._is_started = True
            message["headers"] = self._with_our_headers(list(message.get("headers", ())))
        await self._send(message)
        if message["type"] == "http.response.body":
            self._is_complete = not message.get("more_body", False)
            self._frontend.reporter.report(self._stream.take_sent(time.monotonic()))
            if self._is_complete:
                # Now, and not when the application returns: SGLang sits in a background task for two seconds more.
                self._frontend.close_stream(self._stream)

    def _with_our_headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        content_type = next((value for name, value in headers if name.lower() == b"content-type"), b"")
        self._is_event_stream = content_type.startswith(b"text/event-stream")
        ours = [
            (REQUEST_ID_HEADER, self._stream.rid.encode()),
            (b"access-control-expose-headers", b"X-TokenFlow-Request-Id"),
        ]
        if self._is_event_stream:
            # A proxy that buffers would turn a smooth stream into bursts and our reader into fiction.
            headers = [(name, value) for name, value in headers if name.lower() != b"cache-control"]
            ours += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        return headers + ours

    async def _end_with_error(self, text: str) -> None:
        if self._is_complete:
            return
        if not self._is_started:
            await _send_error(self._send, 503, "server_error", "engine_stopped", None, text)
            return
        body = b""
        if self._is_event_stream:
            error = json.dumps({"error": _error_body("server_error", "engine_stopped", None, text)})
            body = f"data: {error}\n\ndata: [DONE]\n\n".encode()
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def _error_body(kind: str, code: str, parameter: str | None, text: str) -> dict[str, str | None]:
    """OpenAI's error object."""
    return {"message": text, "type": kind, "param": parameter, "code": code}


async def _send_error(send: Send, status: int, kind: str, code: str, parameter: str | None, text: str) -> None:
    body = json.dumps({"error": _error_body(kind, code, parameter, text)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 503:
        headers.append((b"retry-after", b"10"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
