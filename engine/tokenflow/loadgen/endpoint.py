"""Where streams are sent, and what a request to it looks like."""

from enum import StrEnum
from typing import Any

import msgspec

from tokenflow.loadgen.plan import StreamPlan

RATE_HEADER = "X-TokenFlow-Rate"
REQUEST_ID_HEADER = "X-TokenFlow-Request-Id"
ACK_TOKEN_HEADER = "X-TokenFlow-Ack-Token"


class Api(StrEnum):
    """The two OpenAI routes that stream text."""

    CHAT = "chat/completions"
    COMPLETIONS = "completions"


class Endpoint(msgspec.Struct, kw_only=True, frozen=True):
    """An OpenAI-compatible server. `url` is its root, with or without `/v1`.

    A stream's rate goes along in a header that other servers ignore; `claimed_rate_tok_s` puts another one there than
    its reader reads at, and `has_claims` False none at all.
    `idle_timeout_s` bounds the wait for the next bytes, the first token's included. `exact_counts` asks for the
    token count with every chunk (SGLang and vLLM know `continuous_usage_stats`); without it, and where the server
    ignores it, a chunk with text counts as one token. `extra_body` goes into every request as it is.
    """

    url: str
    model: str
    api: Api = Api.CHAT
    api_key: str | None = None
    connect_timeout_s: float = 10.0
    idle_timeout_s: float = 120.0
    exact_counts: bool = True
    has_claims: bool = True
    claimed_rate_tok_s: float | None = None
    extra_body: dict[str, Any] = msgspec.field(default_factory=dict)

    def root(self) -> str:
        """Without `/v1` and without a slash at the end."""
        return self.url.rstrip("/").removesuffix("/v1")

    def route(self) -> str:
        return f"{self.root()}/v1/{self.api.value}"

    def authorization(self) -> dict[str, str]:
        """The header that every request to this server carries; empty without a key."""
        return {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}

    def headers(self, plan: StreamPlan) -> dict[str, str]:
        headers = {"Accept": "text/event-stream"}
        rate_tok_s = plan.rate_tok_s if self.claimed_rate_tok_s is None else self.claimed_rate_tok_s
        if plan.rate_tok_s is not None and rate_tok_s is not None and self.has_claims:
            headers[RATE_HEADER] = f"{rate_tok_s:.10g}"
        return headers | self.authorization()

    def body(self, plan: StreamPlan) -> dict[str, Any]:
        """The JSON body. Temperature 0 unless `extra_body` says otherwise: the same plan asks for the same text."""
        options: dict[str, Any] = {"include_usage": True}
        if self.exact_counts:
            options["continuous_usage_stats"] = True
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": plan.max_tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": options,
        }
        if self.api is Api.CHAT:
            body["messages"] = [{"role": "user", "content": plan.prompt}]
        else:
            body["prompt"] = plan.prompt
        return body | self.extra_body | plan.extra_body
