"""The virtual output buffer of one stream: what was made, what was delivered, what was read."""

import math

import msgspec

MIN_RATE_TOK_S = 0.1
MAX_RATE_TOK_S = 10_000.0
_ROUNDING_S = 1e-9  # below this a gap is a rounding error, not a stall


def sane_rate(rate_tok_s: float | None) -> float | None:
    """A rate one can divide by: within the allowed range; None (no reader) for None and for what is not a number."""
    if rate_tok_s is None or math.isnan(rate_tok_s):
        return None
    return min(max(rate_tok_s, MIN_RATE_TOK_S), MAX_RATE_TOK_S)


class VirtualBuffer(msgspec.Struct, array_like=True):
    """Simulates the reader of one stream (paper section 3.1; docs/policy.md).

    Reading starts at the first delivered visible token and goes on at `rate_tok_s`, never past what was
    delivered. When it would, the stream stalls, and the stalled time is counted until the next delivery.
    A stream that has ended and is read to its last token does not stall.

    Hidden reasoning tokens are counted apart: nobody reads them and they give no runway.
    With `needs_ack` (an agent) nothing is known of the reader before its first ack: no runway until then.

    All times are seconds on one monotonic clock of the caller; a clock that jumps back counts as standing still.
    `rate_tok_s` is None for a request that nobody reads along with (class `batch`): no reader, no runway.
    Rates outside the allowed range are brought into it.

    A msgspec struct, so that the engine's telemetry can send the live object as it is; new fields go at the end.
    """

    rate_tok_s: float | None
    generated_tokens: int = 0
    delivered_tokens: int = 0
    consumed_tokens: float = 0.0
    stall_s: float = 0.0
    stall_count: int = 0
    first_delivery_s: float | None = None
    is_stalled: bool = False
    is_ended: bool = False
    needs_ack: bool = False
    hidden_tokens: int = 0
    acked_tokens: int | None = None
    dry_s: float = 0.0  # how long the present stall has lasted
    _clock_s: float = 0.0

    def __post_init__(self) -> None:
        self.rate_tok_s = sane_rate(self.rate_tok_s)

    def generate(self, total_tokens: int) -> None:
        """The engine has now made `total_tokens` visible tokens. Never goes back."""
        self.generated_tokens = max(self.generated_tokens, total_tokens)

    def hide(self, total_tokens: int) -> None:
        """The engine has now made `total_tokens` tokens that no reader is shown. Never goes back."""
        self.hidden_tokens = max(self.hidden_tokens, total_tokens)

    def deliver(self, now_s: float, total_tokens: int) -> None:
        """The client has now been sent `total_tokens` visible tokens. Never goes back."""
        self.generate(total_tokens)
        if total_tokens <= self.delivered_tokens:
            return
        self.advance(now_s)
        if self.first_delivery_s is None:
            self.first_delivery_s = now_s
            self._clock_s = now_s
        self.delivered_tokens = total_tokens
        self._resume_reading()

    def acknowledge(self, now_s: float, consumed_tokens: int, rate_tok_s: float | None = None) -> None:
        """The client says how much it has read, and perhaps how fast it reads from now on.

        The client knows better than the simulation, so this may move consumption either way; an ack that says
        less than an earlier one is late and changes nothing. Never past what was delivered.
        """
        self.advance(now_s)
        if self.acked_tokens is not None and consumed_tokens < self.acked_tokens:
            return
        self.acked_tokens = min(max(consumed_tokens, 0), self.delivered_tokens)
        self.consumed_tokens = float(self.acked_tokens)
        if self.consumed_tokens < self.delivered_tokens:
            self._resume_reading()
        if rate_tok_s is not None:
            self.set_rate(now_s, rate_tok_s)

    def end(self, now_s: float) -> None:
        """No more tokens will come: what is left is read, and its end is not a stall."""
        self.advance(now_s)
        self.is_ended = True
        self._resume_reading()

    def set_rate(self, now_s: float, rate_tok_s: float | None) -> None:
        """Reads at the old rate up to `now_s` and at the new one from there."""
        self.advance(now_s)
        if self.rate_tok_s is None:
            self._clock_s = max(self._clock_s, now_s)  # a reader who joins now has not been reading until now
        self.rate_tok_s = sane_rate(rate_tok_s)

    def advance(self, now_s: float) -> None:
        """Lets the reader read up to `now_s` and counts the time for which there was nothing to read."""
        if self.first_delivery_s is None or self.rate_tok_s is None or not now_s > self._clock_s:
            return
        elapsed_s = now_s - self._clock_s
        self._clock_s = now_s
        readable_tokens = self.delivered_tokens - self.consumed_tokens
        wanted_tokens = elapsed_s * self.rate_tok_s
        if wanted_tokens < readable_tokens:
            self.consumed_tokens += wanted_tokens
            return
        self.consumed_tokens = float(self.delivered_tokens)
        if self.is_ended or not self.has_reader:
            return
        dry_s = elapsed_s - readable_tokens / self.rate_tok_s
        if dry_s > _ROUNDING_S:
            self.stall_s += dry_s
            self.dry_s += dry_s
            if not self.is_stalled:
                self.is_stalled = True
                self.stall_count += 1

    @property
    def made_tokens(self) -> int:
        """All tokens that the engine has made, hidden ones included."""
        return self.generated_tokens + self.hidden_tokens

    @property
    def has_reader(self) -> bool:
        """False for batch requests, and for an agent before its first ack."""
        return self.rate_tok_s is not None and not (self.needs_ack and self.acked_tokens is None)

    @property
    def unread_tokens(self) -> float | None:
        """Visible generated minus consumed tokens, unrounded. None without a reader."""
        if not self.has_reader:
            return None
        return self.generated_tokens - self.consumed_tokens

    @property
    def runway_s(self) -> float | None:
        """Seconds until the reader has read all that was made. None without a reader."""
        if self.rate_tok_s is None or not self.has_reader:
            return None
        return (self.generated_tokens - self.consumed_tokens) / self.rate_tok_s

    def _resume_reading(self) -> None:
        self.is_stalled = False
        self.dry_s = 0.0
