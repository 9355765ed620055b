"""The HTTP process's picture of one response: what was made for it, what its client was sent."""

import asyncio
import secrets
import time
from contextvars import ContextVar
from dataclasses import dataclass, field

from tokenflow.link import Delivery
from tokenflow.sglang.readers import BATCH_READER, Reader


def mint_rid() -> str:
    """A request id of ours. All have one length: SGLang aborts by prefix, so no id may begin another."""
    return f"tf-{secrets.token_hex(8)}"


@dataclass(slots=True, eq=False)
class StreamContext:
    """One generation request on its way through the HTTP process.

    The middleware makes it, the tokenizer hooks find it through `current_stream`, whatever route the request came by.
    With several choices (`n > 1`, batches) every choice has its own rid and its own count.
    """

    rid: str
    reader: Reader
    arrival_s: float
    task: "asyncio.Task[object] | None" = None
    route_mints_rid: bool = False  # SGLang's responses route names its own ids and aborts by them
    is_warm_up: bool = False  # it came before the engine was ready: SGLang's own
    is_streaming: bool = False
    is_rid_taken: bool = False
    is_disconnected: bool = False
    cut_message: str | None = None
    made_tokens: dict[str, int] = field(default_factory=dict)
    sent_tokens: dict[str, int] = field(default_factory=dict)

    def begin(self, is_streaming: bool) -> None:
        """The body has been read: without `stream` nobody reads along."""
        self.is_streaming = is_streaming
        if not is_streaming:
            self.reader = BATCH_READER

    def claim_rid(self) -> str | None:
        """Our rid for the first generation of this response; None afterwards (tool loops generate several times)."""
        if self.is_rid_taken:
            return None
        self.is_rid_taken = True
        return self.rid

    def note_made(self, rid: str, token_count: int) -> None:
        """SGLang has handed `token_count` tokens of this choice, as a running total, to the response."""
        self.made_tokens[rid] = token_count

    def take_sent(self, now_s: float) -> list[Delivery]:
        """What a completed send has added, as running totals."""
        deliveries = []
        for rid, token_count in self.made_tokens.items():
            if token_count > self.sent_tokens.get(rid, 0):
                self.sent_tokens[rid] = token_count
                deliveries.append(Delivery(rid, token_count, now_s))
        return deliveries

    def closing(self) -> list[Delivery]:
        """The last word on every choice of this response."""
        now_s = time.monotonic()
        rids = self.made_tokens or {self.rid: 0}
        return [Delivery(rid, self.sent_tokens.get(rid, 0), now_s, True, self.is_disconnected) for rid in rids]


current_stream: ContextVar[StreamContext | None] = ContextVar("tokenflow_stream", default=None)
