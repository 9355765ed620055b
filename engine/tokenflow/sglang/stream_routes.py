"""`/tokenflow/v1/streams/{rid}`: what a client may ask and say about its own stream. Never reaches SGLang."""

import logging

import msgspec

from tokenflow.sglang.acks import RefusedError, find_owned, take_ack
from tokenflow.sglang.answers import INVALID_REQUEST, SERVER_ERROR, Message, Receive, Send, send_error, send_json
from tokenflow.sglang.frontend import Frontend

PREFIX = "/tokenflow/"
MAX_BODY_BYTES = 4096
_STREAMS = "/tokenflow/v1/streams/"
_TOKEN_HEADER = b"x-tokenflow-ack-token"


class StreamRoutes:
    """An ASGI application for every path below `PREFIX`."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            body = await self._answer(scope, receive)
        except RefusedError as error:
            await send_error(send, error.status, error.kind, error.code, error.parameter, error.text)
        except Exception as error:  # noqa: BLE001 - a fault of ours: counted, and answered as one
            self._frontend.guard.record("stream routes", error)
            await send_error(send, 500, SERVER_ERROR, "internal", None, "TokenFlow failed; see the engine's log")
        else:
            await send_json(send, 200, body)

    async def _answer(self, scope: Message, receive: Receive) -> bytes:
        path, method = scope["path"], scope["method"]
        rid, is_ack = _parse(path)
        if rid is None:
            raise RefusedError(404, INVALID_REQUEST, "not_found", f"there is no route {path[:80]!r}")
        wanted = "POST" if is_ack else "GET"
        if method != wanted:
            raise RefusedError(405, INVALID_REQUEST, "method_not_allowed", f"use {wanted}")
        token = next((value.decode("latin-1") for name, value in scope["headers"] if name == _TOKEN_HEADER), None)
        if is_ack:
            return await self._ack(rid, token, receive)
        return await self._row(rid, token)

    async def _ack(self, rid: str, token: str | None, receive: Receive) -> bytes:
        frontend = self._frontend
        body = await _read(receive)
        return msgspec.json.encode(take_ack(frontend.book, frontend.settings, frontend.reporter, rid, token, body))

    async def _row(self, rid: str, token: str | None) -> bytes:
        _, choice = find_owned(self._frontend.book, rid, token)
        try:
            row = await self._frontend.rows.row(choice.rid)
        except TimeoutError as error:
            raise RefusedError(
                503, SERVER_ERROR, "engine_busy", "the scheduler does not answer just now; ask again"
            ) from error
        if row is None:
            raise RefusedError(404, INVALID_REQUEST, "not_found", "the scheduler no longer has this stream", "rid")
        return bytes(msgspec.json.encode(row))


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > MAX_BODY_BYTES:
            raise RefusedError(413, INVALID_REQUEST, "too_large", f"an ack has at most {MAX_BODY_BYTES} bytes")
        if message["type"] != "http.request" or not message.get("more_body", False):
            return body


def _parse(path: str) -> tuple[str | None, bool]:
    """The rid and whether the path is that of its acks."""
    if not path.startswith(_STREAMS):
        return None, False
    rid, slash, rest = path.removeprefix(_STREAMS).partition("/")
    if not rid or (slash and rest != "ack"):
        return None, False
    return rid, bool(slash)


def is_access_logged(record: logging.LogRecord) -> bool:
    """A filter of uvicorn's access log: acks come by the thousands, a line for each would be most of it."""
    arguments = record.args
    path = arguments[2] if isinstance(arguments, tuple) and len(arguments) > 2 else ""
    return not (isinstance(path, str) and path.startswith(PREFIX))
