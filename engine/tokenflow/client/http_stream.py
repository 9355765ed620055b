"""The connection behind a paced stream: reads as fast as the server sends, so that a slow reader holds nothing up."""

import contextlib
import http.client
import json
import queue
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tokenflow.errors import OperationError, ServerUnreachableError, UsageError
from tokenflow.loadgen.chunks import DONE, Chunk, MalformedChunkError, error_message, parse_chunk
from tokenflow.loadgen.sse import EventDecoder

_PIECE_BYTES = 65_536
_HINT = "look at the server: tfctl status; tfctl logs"


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event brought. A token without text (the end of the text) counts as well."""

    text: str
    token_count: int


class HttpStream:
    """`pieces` fills from a thread of its own; None or an error is the last thing in it."""

    def __init__(
        self,
        url: str,
        route: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        *,
        api_key: str | None,
        idle_timeout_s: float,
    ) -> None:
        self.pieces: queue.SimpleQueue[Piece | OperationError | None] = queue.SimpleQueue()
        self.rid: str | None = None
        self.ack_token: str | None = None
        self.is_over = threading.Event()  # nothing more comes from the server
        self.authorization = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._parts = urlsplit(url.rstrip("/").removesuffix("/v1"))
        if self._parts.scheme not in ("http", "https") or not self._parts.hostname:
            raise UsageError(f"{url!r} is not an HTTP address", hint="such as http://127.0.0.1:30000", field="url")
        self._path = f"/v1/{route}"
        self._body = json.dumps(body).encode()
        self._headers = {"Content-Type": "application/json", "Accept": "text/event-stream", **headers}
        self._idle_timeout_s = idle_timeout_s
        self._token_count = 0
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._receive, name="paced-stream", daemon=True)

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        """A new connection to the server; nothing is sent yet."""
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        assert self._parts.hostname is not None
        return kind(self._parts.hostname, self._parts.port, timeout=timeout_s)

    def path(self, below_root: str) -> str:
        return self._parts.path + below_root

    def open(self) -> None:
        """Sends the request. Raises ServerUnreachableError, or OperationError with what the server says."""
        connection = self.connect(self._idle_timeout_s)
        try:
            connection.request("POST", self.path(self._path), self._body, self._headers | self.authorization)
            self._socket = connection.sock
            self._response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ServerUnreachableError(f"no answer from {self._parts.netloc}: {error}", hint=_HINT) from None
        if self._response.status != 200:
            message = _message(self._response)
            connection.close()
            raise OperationError(f"HTTP {self._response.status}: {message}", hint=_HINT)
        self.rid = self._response.headers.get("X-TokenFlow-Request-Id")
        self.ack_token = self._response.headers.get("X-TokenFlow-Ack-Token")
        self._thread.start()

    def close(self) -> None:
        """Wakes the thread, which closes the connection."""
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is closed already
                self._socket.shutdown(socket.SHUT_RDWR)

    def _receive(self) -> None:
        decoder = EventDecoder()
        ending: OperationError | None = OperationError("the stream ended without [DONE]", hint=_HINT)
        try:
            while chunk := self._response.read1(_PIECE_BYTES):
                for event in decoder.feed(chunk):
                    if event.data == DONE:
                        ending = None
                        return
                    self._take(parse_chunk(event))
        except MalformedChunkError as error:
            ending = OperationError(str(error), hint=_HINT)
        except OperationError as error:
            ending = error
        except (OSError, http.client.HTTPException, ValueError) as error:
            ending = OperationError(f"the connection broke: {error or type(error).__name__}", hint=_HINT)
        finally:
            self.is_over.set()
            self.pieces.put(ending)
            self._response.close()

    def _take(self, chunk: Chunk) -> None:
        """By the server's own total where it has one, else one token for a chunk with text."""
        if chunk.error is not None:
            raise OperationError(chunk.error, hint=_HINT)
        total = chunk.completion_tokens
        if total is None:
            total = self._token_count + (1 if chunk.text else 0)
        token_count = max(0, total - self._token_count)
        self._token_count += token_count
        if chunk.text or token_count:
            self.pieces.put(Piece(chunk.text, token_count))


def _message(response: http.client.HTTPResponse) -> str:
    """What the server says about the request that it refused."""
    body = response.read(_PIECE_BYTES)
    try:
        document = json.loads(body)
    except ValueError:
        return body.decode(errors="replace").strip()[:200] or response.reason
    return error_message(document.get("error", document)) if isinstance(document, dict) else str(document)[:200]
