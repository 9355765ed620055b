"""What the HTTP process answers by itself, without SGLang: errors in OpenAI's shape, and small JSON documents."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
_RETRY_AFTER_S = b"10"


def error_body(kind: str, code: str, parameter: str | None, text: str) -> dict[str, str | None]:
    """OpenAI's error object."""
    return {"message": text, "type": kind, "param": parameter, "code": code}


async def send_error(send: Send, status: int, kind: str, code: str, parameter: str | None, text: str) -> None:
    body = json.dumps({"error": error_body(kind, code, parameter, text)}).encode()
    await send_json(send, status, body)


async def send_json(send: Send, status: int, body: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if status == 503:
        headers.append((b"retry-after", _RETRY_AFTER_S))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
