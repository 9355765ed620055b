"""A GPU with a model, from a fitted file: the simulator's performance model."""

from dataclasses import dataclass

from tokenflow.sim.models.formula import StepFormula
from tokenflow.sim.performance import Floats, Link, StepWork

# What a serving engine keeps beside weights and KV. From the one measured pool: RTX 4090, Llama-3.1-8B in bf16,
# vLLM 0.19 at 0.9 of the memory, 41,408 tokens (LLMServingSim).
RESERVED_BYTES = 1_237_580_000
_PAGE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class FittedModel:
    """Satisfies `PerformanceModel`. `overhead_ratio` is what a step of the serving engine takes over its GPU kernels.

    `weight_bytes` and `kv_bytes_per_token` are those of one GPU of a tensor-parallel group.
    """

    gpu: str
    model: str
    source: str
    formula: StepFormula
    overhead_ratio: float
    memory_bytes: float
    weight_bytes: float
    kv_bytes_per_token: float
    link: Link
    gpu_count: int = 1

    def kv_tokens(self, mem_fraction: float) -> int:
        """KV tokens that fit beside the weights in this share of the device's memory. 0 if the weights do not fit."""
        room_bytes = self.memory_bytes * mem_fraction - self.weight_bytes - RESERVED_BYTES
        return max(int(room_bytes // (self.kv_bytes_per_token * _PAGE_TOKENS)) * _PAGE_TOKENS, 0)

    def step_s(self, work: StepWork) -> float:
        """Seconds of one step, decode, prefill or both."""
        return self.overhead_ratio * self.formula.step_s(work)

    def decode_steps_s(self, batch: int, kv_tokens: Floats) -> Floats:
        """Seconds of decode steps alone, one for each sum of contexts; the same as `step_s` for each."""
        return self.overhead_ratio * self.formula.decode_steps_s(batch, kv_tokens)
