"""What is known about one stream so far: fed by the client while it runs, readable at any moment."""

from tokenflow.loadgen.chunks import Chunk
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.reader import PacedReader
from tokenflow.loadgen.result import Outcome, StreamResult


class StreamRecorder:
    """Times are seconds since the start of the run. A stream that nobody ended counts as cancelled."""

    def __init__(self, plan: StreamPlan, *, keep_text: bool = False) -> None:
        self.plan = plan
        self.reader = PacedReader(plan.rate_tok_s)
        self.outcome: Outcome | None = None
        self.finish_reason: str | None = None
        self.rid: str | None = None
        self.acked_tokens = 0
        self._keep_text = keep_text
        self._http_status: int | None = None
        self._error: str | None = None
        self._sent_s: float | None = None
        self._ended_s: float | None = None
        self._prompt_tokens: int | None = None
        self._token_times_s: list[float] = []
        self._ack_count = 0
        self._failed_ack_count = 0
        self._text: list[str] = []

    @property
    def is_live(self) -> bool:
        """True from sending to the end of the stream."""
        return self._sent_s is not None and self.outcome is None

    @property
    def token_count(self) -> int:
        return len(self._token_times_s)

    def send(self, now_s: float) -> None:
        self._sent_s = now_s

    def respond(self, http_status: int, rid: str | None) -> None:
        self._http_status = http_status
        self.rid = rid

    def receive(self, now_s: float, chunk: Chunk) -> None:
        """Counts a chunk's tokens: by the server's own total where it has one, else one for each chunk with text."""
        if chunk.prompt_tokens is not None:
            self._prompt_tokens = chunk.prompt_tokens
        if chunk.finish_reason is not None:
            self.finish_reason = chunk.finish_reason
        if self._keep_text:
            self._text.append(chunk.text)
        total = chunk.completion_tokens
        if total is None:
            total = self.token_count + (1 if chunk.text else 0)
        new_tokens = total - self.token_count
        if new_tokens > 0:
            self._token_times_s.extend([now_s] * new_tokens)
            self.reader.arrive(now_s, total)

    def ack(self, consumed_tokens: int, *, is_accepted: bool) -> None:
        """The server was told how far the reader is, and took it or not."""
        if is_accepted:
            self._ack_count += 1
            self.acked_tokens = max(self.acked_tokens, consumed_tokens)
        else:
            self._failed_ack_count += 1

    def end(self, now_s: float, outcome: Outcome, error: str | None = None) -> None:
        """The first end of a stream is the one that counts."""
        if self.outcome is None:
            self.outcome = outcome
            self._error = error
            self._ended_s = now_s
            self.reader.end(now_s)

    def result(self) -> StreamResult:
        sent_s, ended_s = self._sent_s, self._ended_s
        return StreamResult(
            index=self.plan.index,
            outcome=self.outcome or Outcome.CANCELLED,
            rid=self.rid,
            http_status=self._http_status,
            finish_reason=self.finish_reason,
            error=self._error,
            rate_tok_s=self.plan.rate_tok_s,
            max_tokens=self.plan.max_tokens,
            prompt_tokens=self._prompt_tokens,
            token_count=self.token_count,
            arrival_s=self.plan.arrival_s,
            sent_s=sent_s,
            dispatch_lag_s=None if sent_s is None else max(0.0, sent_s - self.plan.arrival_s),
            ttft_s=None if sent_s is None or not self._token_times_s else self._token_times_s[0] - sent_s,
            duration_s=None if sent_s is None or ended_s is None else ended_s - sent_s,
            stall_s=self.reader.stall_s,
            stall_count=self.reader.stall_count,
            least_runway_s=self.reader.least_runway_s,
            ack_count=self._ack_count,
            failed_ack_count=self._failed_ack_count,
            acked_tokens=self.acked_tokens,
            token_times_s=list(self._token_times_s),
            text="".join(self._text) if self._keep_text else None,
        )
