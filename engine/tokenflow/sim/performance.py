"""What a GPU takes for a step, and what moves between it and the host: the interface of every performance model."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StepWork:
    """What one step computes: any number of decoding streams, and pieces of prompts (or of KV that was lost).

    `pair_count` is Σ over the pieces of new · (prefix + (new + 1) / 2): the query-key pairs that attention computes.
    """

    decode_batch: int = 0
    decode_kv_tokens: float = 0.0  # sum of the contexts of the decoding streams
    piece_count: int = 0
    new_tokens: int = 0
    pair_count: float = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """The way between device and host, one direction each.

    `h2d_contention_ratio` is what is left of h2d while d2h runs (PCIe Gen4: about 0.5). `interference_ratio` is by
    how much a step takes longer while copies run; 1 is perfect overlap.
    """

    d2h_bytes_s: float
    h2d_bytes_s: float
    fixed_s: float = 0.0001  # of each transfer
    h2d_contention_ratio: float = 1.0
    interference_ratio: float = 1.0


class PerformanceModel(Protocol):
    """One GPU (or one tensor-parallel group) with one model. Times are seconds of GPU time, without the scheduler's."""

    @property
    def gpu(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def source(self) -> str:
        """Where the figures are from, in one line, for every report."""
        ...

    @property
    def gpu_count(self) -> int:
        """GPUs of the tensor-parallel group."""
        ...

    @property
    def kv_bytes_per_token(self) -> float:
        """On each GPU of the group."""
        ...

    @property
    def link(self) -> Link: ...

    def kv_tokens(self, mem_fraction: float) -> int:
        """KV tokens that fit beside the weights in this share of the device's memory. 0 if the weights do not fit."""
        ...

    def step_s(self, work: StepWork) -> float:
        """Seconds of one step, decode, prefill or both."""
        ...

    def decode_steps_s(self, batch: int, kv_tokens: Floats) -> Floats:
        """Seconds of decode steps alone, one for each sum of contexts; the same as `step_s` for each."""
        ...


@dataclass(frozen=True, slots=True)
class LinearModel:
    """A step as a sum of shares: fixed, a stream, a token of context, a piece, a new token, a query-key pair.

    What `--calibrate` makes of measured values, and what tests use.
    """

    gpu: str
    model: str
    source: str
    kv_bytes_per_token: float
    link: Link
    kv_token_count: int
    step_fixed_s: float
    stream_s: float
    kv_token_s: float
    piece_s: float = 0.0
    new_token_s: float = 0.0
    pair_s: float = 0.0
    gpu_count: int = 1
    prefill_fixed_s: float = 0.0  # of a step with prefill in it, instead of `step_fixed_s` if it is more

    def kv_tokens(self, mem_fraction: float) -> int:
        """`mem_fraction` counts as a share of the pool that was measured."""
        return int(self.kv_token_count * mem_fraction)

    def step_s(self, work: StepWork) -> float:
        fixed_s = self.step_fixed_s if work.decode_batch else 0.0
        step_s = self.stream_s * work.decode_batch + self.kv_token_s * work.decode_kv_tokens
        if work.new_tokens:
            fixed_s = max(fixed_s, self.prefill_fixed_s)
            step_s += (
                self.piece_s * work.piece_count + self.new_token_s * work.new_tokens + self.pair_s * work.pair_count
            )
        return fixed_s + step_s

    def decode_steps_s(self, batch: int, kv_tokens: Floats) -> Floats:
        return self.step_fixed_s + self.stream_s * batch + self.kv_token_s * kv_tokens
