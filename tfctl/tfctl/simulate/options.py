"""The options of `tfctl simulate`, read but not yet checked against each other."""

from dataclasses import dataclass
from pathlib import Path

from tokenflow.sim.settings import LoadOverlap


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """Laws and mixes are in their notation; None: the default of the option's help."""

    gpu: str
    model: str
    calibrate: Path | None
    policies: tuple[str, ...]
    arrivals: str
    request_count: int | None
    input_tokens: str | None
    output_tokens: str | None
    max_tokens: int | None
    rates: str | None
    speedup: float
    kv_tokens: int | None
    mem_fraction: float | None
    host_gb: float
    page_tokens: int
    max_running: int
    chunk_tokens: int | None
    has_mixed_steps: bool
    link_gbs: float | None
    interference_ratio: float | None
    overlap: LoadOverlap
    step_overhead_ms: float
    decision_pause_ms: float
    tune: tuple[str, ...]
    goodput: str | None
    seeds: tuple[int, ...]
    html: Path | None
    requests_out: Path | None
    events: Path | None
    has_timing: bool
