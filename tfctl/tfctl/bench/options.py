"""The options of `tfctl bench`, read but not yet checked against each other."""

from dataclasses import dataclass
from pathlib import Path

from tokenflow.loadgen.endpoint import Api


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Laws and mixes are in their notation; None: the default of the option's help."""

    url: str | None
    model: str | None
    api: Api
    arrivals: str | None
    request_count: int | None
    rates: str | None
    prompts: Path | None
    input_tokens: str | None
    output_tokens: str | None
    ignores_eos: bool
    speedup: float
    has_acks: bool
    has_claims: bool
    claimed_rate_tok_s: float | None
    seeds: tuple[int, ...]
    warm_up_count: int
    goodput: str | None
    output: Path | None
    requests_out: Path | None
    has_details: bool
    tag: str | None
    api_key_env: str | None
    counts_chunks: bool
    idle_timeout_s: float
