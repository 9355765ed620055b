"""The ASGI middleware in front of SGLang's HTTP server: who reads, what was sent, and an orderly end.

The outermost of ours. Written as plain ASGI, so that streams pass through it chunk by chunk.
"""

import asyncio
import json
import time
from collections.abc import Callable

from tokenflow.sglang.answers import SERVER_ERROR, App, Message, Receive, Send, error_body, send_error
from tokenflow.sglang.frontend import Frontend, is_engine_ready
from tokenflow.sglang.readers import BATCH_READER
from tokenflow.sglang.streams import StreamContext, current_stream, mint_rid

REQUEST_ID_HEADER = b"x-tokenflow-request-id"
ACK_TOKEN_HEADER = b"x-tokenflow-ack-token"
EXPOSED_HEADERS = b"X-TokenFlow-Request-Id, X-TokenFlow-Ack-Token"
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
GENERATION_METHODS = frozenset({"POST", "PUT"})
OWN_RID_PATHS = frozenset({"/v1/responses"})


class TokenFlowMiddleware:
    """Wraps generation routes; everything else passes untouched."""

    def __init__(self, app: App, frontend: Frontend, is_ready: Callable[[], bool] = is_engine_ready) -> None:
        self._app = app
        self._frontend = frontend
        self._is_ready = is_ready

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        is_generation = (
            scope["type"] == "http" and scope["path"] in GENERATION_PATHS and scope["method"] in GENERATION_METHODS
        )
        if is_generation and not self._frontend.is_admission_open:
            await send_error(send, 503, SERVER_ERROR, "engine_stopping", None, "the engine is being stopped")
            return
        if not is_generation:
            await self._app(scope, receive, send)
            return
        if self._frontend.guard.is_tripped:
            await self._pass_counted(scope, receive, send)
            return
        # Who reads is set by ReaderMiddleware, once SGLang has checked the request's key and unpacked its body.
        stream = StreamContext(mint_rid(), BATCH_READER, time.monotonic(), asyncio.current_task())
        stream.is_warm_up = not self._is_ready()
        stream.route_mints_rid = scope["path"] in OWN_RID_PATHS
        await _Response(self._app, self._frontend, stream, send).run(scope, receive)

    async def _pass_counted(self, scope: Message, receive: Receive, send: Send) -> None:
        """With the plugin off nothing is done to a response, but a drain has to wait for it."""
        self._frontend.bare_count += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._frontend.bare_count -= 1


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
        self._has_left = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None

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
            if self._watcher is not None:
                self._watcher.cancel()
            self._frontend.close_stream(self._stream)
            current_stream.reset(token)

    def _receiver(self, receive: Receive) -> Receive:
        """Passes the body on. From its end on we listen ourselves: SGLang looks every few seconds, if at all."""

        async def receive_and_watch() -> Message:
            if self._watcher is not None:
                await self._has_left.wait()
                return {"type": "http.disconnect"}
            message = await receive()
            if message["type"] == "http.disconnect":
                self._note_left()
            elif not message.get("more_body", False):
                self._watcher = asyncio.create_task(self._watch(receive))
            return message

        return receive_and_watch

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._note_left()

    def _note_left(self) -> None:
        """The server says so of a complete response too."""
        self._has_left.set()
        if not self._is_complete:
            self._frontend.client_left(self._stream)

    async def _forward(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._is_started = True
            message["headers"] = self._with_our_headers(list(message.get("headers", ())))
        stream, sent_s = self._stream, time.monotonic()
        stream.sending_since_s = sent_s
        await self._send(message)
        stream.sending_since_s = None
        if message["type"] == "http.response.body":
            self._is_complete = self._is_complete or not message.get("more_body", False)
            self._note_sent(sent_s)

    def _note_sent(self, sent_s: float) -> None:
        stream, frontend = self._stream, self._frontend
        if stream.is_disconnected:
            return  # what is written to a closed connection reaches nobody
        deliveries = stream.take_sent(sent_s, time.monotonic())
        if stream.is_blocked:
            stream.is_blocked = False
            deliveries = stream.standing()
        frontend.reporter.report(deliveries)
        if self._is_complete:
            # Now, and not when the application returns: SGLang sits in a background task for two seconds more.
            frontend.close_stream(stream)

    def _with_our_headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        content_type = next((value for name, value in headers if name.lower() == b"content-type"), b"")
        self._is_event_stream = content_type.startswith(b"text/event-stream")
        ours = [
            (REQUEST_ID_HEADER, self._stream.rid.encode()),
            (ACK_TOKEN_HEADER, self._stream.ack_token.encode()),
            (b"access-control-expose-headers", EXPOSED_HEADERS),
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
            await send_error(self._send, 503, SERVER_ERROR, "engine_stopped", None, text)
            return
        body = b""
        if self._is_event_stream:
            error = json.dumps({"error": error_body(SERVER_ERROR, "engine_stopped", None, text)})
            body = f"data: {error}\n\ndata: [DONE]\n\n".encode()
        await self._send({"type": "http.response.body", "body": body, "more_body": False})
