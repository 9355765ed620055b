"""What is asked of the simulated engine: one entry a request."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SimRequest:
    """One request. `output_tokens` counts all that are made, the first `hidden_tokens` of them for no reader's eyes.

    `rate_tok_s` None: nobody reads along. `leaves_s`: the client is gone this long after the arrival, if it has not
    got everything by then. `max_tokens` is what the scheduler is told; None tells it the true length.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    rate_tok_s: float | None
    hidden_tokens: int = 0
    leaves_s: float | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        assert self.arrival_s >= 0.0
        assert self.prompt_tokens >= 1
        assert self.output_tokens >= 1
        assert 0 <= self.hidden_tokens < self.output_tokens
        assert self.max_tokens is None or self.max_tokens >= self.output_tokens
