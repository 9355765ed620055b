"""The HTTP process's picture of one response: what was made for it, what its client was sent and says to have read."""

import asyncio
import secrets
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from tokenflow.link import Delivery
from tokenflow.sglang.readers import BATCH_READER, Reader


def mint_rid() -> str:
    """A request id of ours. All have one length: SGLang aborts by prefix, so no id may begin another."""
    return f"tf-{secrets.token_hex(8)}"


def mint_ack_token() -> str:
    """What a client must show to ack its stream or to look at it."""
    return secrets.token_urlsafe(16)


@dataclass(slots=True, eq=False)
class Choice:
    """One sequence of tokens of a response, as running totals of visible tokens."""

    rid: str
    is_streamed: bool = False
    made_tokens: int = 0  # SGLang has handed them to the response
    sent_tokens: int = 0  # handed to the client's socket
    acked_tokens: int = 0  # the client says that it has read them


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
    ack_token: str = field(default_factory=mint_ack_token)
    manager: Any = None  # SGLang's tokenizer manager, once it has the request
    route_mints_rid: bool = False  # SGLang's responses route names its own ids and aborts by them
    is_warm_up: bool = False  # it came before the engine was ready: SGLang's own
    is_streaming: bool = False
    is_rid_taken: bool = False
    is_disconnected: bool = False
    is_background: bool = False  # it goes on without its client, who will ask for the outcome later
    is_aborted: bool = False
    cut_message: str | None = None
    sending_since_s: float | None = None  # a send to the client's socket is under way
    is_blocked: bool = False  # and takes so long that the client does not drain it
    choices: dict[str, Choice] = field(default_factory=dict)

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

    def choice(self, rid: str, is_streamed: bool = False) -> Choice:
        """The choice of that id, made if it is new."""
        found = self.choices.get(rid)
        if found is None:
            found = self.choices[rid] = Choice(rid, is_streamed)
        return found

    def note_made(self, rid: str, token_count: int) -> None:
        """SGLang has handed `token_count` visible tokens of this choice, as a running total, to the response."""
        self.choice(rid).made_tokens = token_count

    def take_sent(self, sent_s: float, now_s: float) -> list[Delivery]:
        """What a completed send has added, as running totals. It began at `sent_s`."""
        deliveries = []
        for choice in self.choices.values():
            if choice.made_tokens > choice.sent_tokens:
                choice.sent_tokens = choice.made_tokens
                deliveries.append(Delivery(choice.rid, choice.sent_tokens, now_s, sent_s=sent_s))
        return deliveries

    def standing(self) -> list[Delivery]:
        """Whether the client drains what it is sent, for every choice of this response."""
        now_s = time.monotonic()
        return [
            Delivery(choice.rid, choice.sent_tokens, now_s, is_blocked=self.is_blocked)
            for choice in self.choices.values()
        ]

    def closing(self) -> list[Delivery]:
        """The last word on every choice of this response."""
        now_s = time.monotonic()
        choices = self.choices.values() or (Choice(self.rid),)
        return [Delivery(choice.rid, choice.sent_tokens, now_s, True, self.is_disconnected) for choice in choices]


current_stream: ContextVar[StreamContext | None] = ContextVar("tokenflow_stream", default=None)
