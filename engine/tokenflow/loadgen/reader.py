"""A reader at its own pace: what a person at the other end of a stream would have experienced."""

from tokenflow.policy.buffer import VirtualBuffer


class PacedReader:
    """Reads one stream from its first token's arrival on, at a fixed rate, never past what has arrived.

    The arithmetic is the scheduler's own virtual buffer, fed with arrival times at the client. Times are seconds of
    one monotonic clock. A rate of None is a request that nobody reads along with: it never stalls.
    """

    def __init__(self, rate_tok_s: float | None) -> None:
        self._buffer = VirtualBuffer(rate_tok_s=rate_tok_s)
        self._least_runway_s: float | None = None

    def arrive(self, now_s: float, total_tokens: int) -> None:
        """`total_tokens` tokens have arrived by now, the earlier ones included."""
        self._note_runway(now_s)
        self._buffer.deliver(now_s, total_tokens)

    def end(self, now_s: float) -> None:
        """No more tokens will come. From here on the reader cannot stall."""
        self._note_runway(now_s)
        self._buffer.end(now_s)

    def _note_runway(self, now_s: float) -> None:
        """The runway is least just before an arrival, so these are the only moments to look."""
        self._buffer.advance(now_s)
        runway_s = self.runway_s
        if runway_s is not None and (self._least_runway_s is None or runway_s < self._least_runway_s):
            self._least_runway_s = runway_s

    def runway_at(self, now_s: float) -> float | None:
        """Seconds of reading left at `now_s`; None without a reader or before the first token."""
        self._buffer.advance(now_s)
        return self.runway_s

    def read_at(self, now_s: float) -> float:
        """Tokens read by `now_s`, the one in hand in part."""
        self._buffer.advance(now_s)
        return self.read_tokens

    @property
    def runway_s(self) -> float | None:
        """As of the last moment the reader was told about."""
        return None if self._buffer.first_delivery_s is None else self._buffer.runway_s

    @property
    def least_runway_s(self) -> float | None:
        """The least runway between the first token and the end of the stream; 0 where the reader stalled."""
        return self._least_runway_s

    @property
    def stall_s(self) -> float:
        return self._buffer.stall_s

    @property
    def stall_count(self) -> int:
        return self._buffer.stall_count

    @property
    def arrived_tokens(self) -> int:
        return self._buffer.delivered_tokens

    @property
    def read_tokens(self) -> float:
        return self._buffer.consumed_tokens
