"""`PacedStream`: one OpenAI stream as a reader sees it. Needs no HTTP package beyond the standard library's."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from tokenflow.client.ack_thread import AckThread
from tokenflow.client.http_stream import HttpStream, Piece
from tokenflow.errors import OperationError
from tokenflow.policy.buffer import MAX_RATE_TOK_S, MIN_RATE_TOK_S

RATE_HEADER = "X-TokenFlow-Rate"
CLASS_HEADER = "X-TokenFlow-Class"


class PacedStream:
    """Iterating gives pieces of text, each when the reader is done with what came before it.

    `body` is the request as the OpenAI API has it; `stream` and its options are added. The rate (tokens per second,
    0.1 to 10000) and `class_name` go along in headers that other servers ignore. Where the server gives a token for
    it, what has been read is acked every `ack_interval_s`; `can_ack` says whether it does. Leaving the `with` block
    before the end closes the connection, which ends the request on the server too.

    Entering raises ServerUnreachableError or OperationError; iterating raises OperationError where the stream breaks.
    """

    def __init__(
        self,
        url: str,
        body: Mapping[str, Any],
        *,
        rate_tok_s: float,
        class_name: str | None = None,
        api_key: str | None = None,
        route: str = "chat/completions",
        ack_interval_s: float = 0.5,
        idle_timeout_s: float = 120.0,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        assert MIN_RATE_TOK_S <= rate_tok_s <= MAX_RATE_TOK_S, rate_tok_s
        headers = {RATE_HEADER: f"{rate_tok_s:.10g}"}
        if class_name is not None:
            headers[CLASS_HEADER] = class_name
        options = {"include_usage": True, "continuous_usage_stats": True}
        whole_body = {**body, "stream": True, "stream_options": options}
        self.consumed_tokens = 0
        self._rate_tok_s = rate_tok_s
        self._clock_s = clock_s
        self._http = HttpStream(url, route, whole_body, headers, api_key=api_key, idle_timeout_s=idle_timeout_s)
        self._acks = AckThread(self._http, lambda: self.consumed_tokens, interval_s=ack_interval_s)
        self._closed = threading.Event()

    @property
    def rid(self) -> str | None:
        """The request's id, as `tfctl ps` shows it; None where the server gave none."""
        return self._http.rid

    @property
    def ack_token(self) -> str | None:
        """For other routes of this stream's own, such as its row (docs/http.md); None from a server without acks."""
        return self._http.ack_token

    @property
    def can_ack(self) -> bool:
        return self._http.ack_token is not None and self._http.rid is not None

    @property
    def rate_tok_s(self) -> float:
        return self._rate_tok_s

    @rate_tok_s.setter
    def rate_tok_s(self, rate_tok_s: float) -> None:
        """From the next piece on; the server is told with the next ack."""
        assert MIN_RATE_TOK_S <= rate_tok_s <= MAX_RATE_TOK_S, rate_tok_s
        self._rate_tok_s = rate_tok_s
        self._acks.tell_rate(rate_tok_s)

    def __enter__(self) -> Self:
        self._http.open()
        if self.can_ack:
            self._acks.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the request on the server if it still runs. May be called twice, and from another thread."""
        self._closed.set()
        self._acks.stop()
        self._http.close()

    def __iter__(self) -> Iterator[str]:
        read_until_s: float | None = None  # when the reader is done with what it has
        while (piece := self._next_piece()) is not None:
            if piece.text:
                yield piece.text
            # A reader who had nothing to read loses no time over it: reading goes on when there is something again.
            began_s = self._clock_s() if read_until_s is None else max(read_until_s, self._clock_s())
            read_until_s = began_s + piece.token_count / self._rate_tok_s
            if self._closed.wait(max(0.0, read_until_s - self._clock_s())):
                return
            self.consumed_tokens += piece.token_count

    def _next_piece(self) -> Piece | None:
        """None at the end of the stream, or once it was closed here."""
        while not self._closed.is_set():
            try:
                item = self._http.pieces.get(timeout=0.5)
            except queue.Empty:
                continue
            if isinstance(item, OperationError):
                raise item
            return item
        return None
