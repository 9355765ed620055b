"""Tells the server now and then how far the reader is."""

import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable
from urllib.parse import quote

from tokenflow.client.http_stream import HttpStream

_ACK_LIMIT_S = 5.0
_STANDSTILL_S = 1.0  # a reader that stands still says so that often: without a word the server thinks that it reads on


class AckThread:
    """Acks what is new, until the stream is over or it is stopped, and once a second that nothing is.

    An ack that fails is made up for by the next one.
    """

    def __init__(self, stream: HttpStream, consumed_tokens: Callable[[], int], *, interval_s: float) -> None:
        self._stream = stream
        self._consumed_tokens = consumed_tokens
        self._interval_s = interval_s
        self._rate_tok_s: float | None = None  # one that the server has not been told yet
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paced-stream-acks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def tell_rate(self, rate_tok_s: float) -> None:
        self._rate_tok_s = rate_tok_s

    def _run(self) -> None:
        acked_tokens, acked_s = 0, time.monotonic()
        connection = self._stream.connect(_ACK_LIMIT_S)
        with contextlib.closing(connection):
            while not self._stopped.wait(self._interval_s) and not self._stream.is_over.is_set():
                consumed_tokens, rate_tok_s = self._consumed_tokens(), self._rate_tok_s
                is_news = consumed_tokens > acked_tokens or rate_tok_s is not None
                if not is_news and (not acked_tokens or time.monotonic() - acked_s < _STANDSTILL_S):
                    continue
                if self._post(connection, consumed_tokens, rate_tok_s):
                    acked_tokens, acked_s = consumed_tokens, time.monotonic()
                    if self._rate_tok_s == rate_tok_s:
                        self._rate_tok_s = None

    def _post(self, connection: http.client.HTTPConnection, consumed_tokens: int, rate_tok_s: float | None) -> bool:
        """True if the server took it."""
        assert self._stream.rid is not None
        assert self._stream.ack_token is not None
        body: dict[str, float] = {"consumed_tokens": consumed_tokens}
        if rate_tok_s is not None:
            body["rate"] = rate_tok_s
        headers = {"Content-Type": "application/json", "X-TokenFlow-Ack-Token": self._stream.ack_token}
        path = self._stream.path(f"/tokenflow/v1/streams/{quote(self._stream.rid, safe='')}/ack")
        try:
            connection.request("POST", path, json.dumps(body).encode(), headers | self._stream.authorization)
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            connection.close()  # opens again by itself
            return False
        return response.status < 300
