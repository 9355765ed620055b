"""The inner ASGI middleware: who reads this stream, by the request's headers and body, and the routes of our own.

It stands behind SGLang's own middlewares: bodies have been decompressed and API keys checked when it sees a request,
and what it answers gets the headers that browsers want (CORS). Bodies are read, and passed on as they came.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tokenflow.sglang.answers import INVALID_REQUEST, App, Message, Receive, Send, send_error
from tokenflow.sglang.frontend import Frontend
from tokenflow.sglang.readers import BODY_FIELD, BadReaderError, reader_of, wish_of_body, wish_of_headers
from tokenflow.sglang.stream_routes import PREFIX, StreamRoutes
from tokenflow.sglang.streams import current_stream

_MARK = f'"{BODY_FIELD}"'.encode()


class _Body(msgspec.Struct):
    """The one field that is ours; the others are skipped without being built."""

    tokenflow: Any = None


class ReaderMiddleware:
    """Sets the reader of the stream that `TokenFlowMiddleware` has opened, or answers with 400."""

    def __init__(self, app: App, frontend: Frontend) -> None:
        self._app = app
        self._frontend = frontend
        self._routes = StreamRoutes(frontend)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            await self._routes(scope, receive, send)
            return
        stream = current_stream.get()
        if stream is None:
            await self._app(scope, receive, send)
            return
        settings = self._frontend.settings
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        messages, body = await _read(receive)
        try:
            wish = wish_of_headers(headers, settings).under(wish_of_body(_own_field(body), settings))
            stream.reader = reader_of(wish, settings)
        except BadReaderError as error:
            await send_error(send, 400, INVALID_REQUEST, "invalid_value", error.parameter, str(error))
            return
        await self._app(scope, _replay(messages, receive), send)


async def _read(receive: Receive) -> tuple[list[Message], bytes]:
    """The request's messages up to the end of its body, and the body. SGLang would collect them all the same."""
    messages: list[Message] = []
    while True:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request" or not message.get("more_body", False):
            return messages, b"".join(message.get("body", b"") for message in messages)


def _replay(messages: list[Message], receive: Receive) -> Callable[[], Awaitable[Message]]:
    waiting = iter(messages)

    async def replayed() -> Message:
        for message in waiting:
            return message
        return await receive()

    return replayed


def _own_field(body: bytes) -> Any:
    """None where there is none. What is no JSON object is SGLang's to refuse."""
    if _MARK not in body:
        return None
    try:
        return msgspec.json.decode(body, type=_Body).tokenflow
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
