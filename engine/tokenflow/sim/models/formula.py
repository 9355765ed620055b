"""One formula for every engine step: decode alone, prefill alone, and both mixed.

    T = c + c_p·[prefill] + G(new + sequences) + H(sequences) + A(kv) + a_m·kv·[prefill]
        + q·pairs·max(1, n_0·pieces/new)

G is the work that grows with the step's tokens (the GEMMs), H what comes on top for each decoding sequence (sampling,
launches), A the attention of decoding over all KV read, a_m what that attention costs more when the step also
prefills, q the attention of prefilling a token over one before it; a piece of a prompt with less than n_0 tokens costs
there what n_0 tokens do. G, H and A are piecewise linear and never fall: a GPU's step is flat while weights are
streamed and linear once it computes. So a step with more to do never takes less time.
"""

from dataclasses import dataclass

from tokenflow.sim.models.ramp import Ramp
from tokenflow.sim.performance import Floats, StepWork


@dataclass(frozen=True, slots=True)
class StepFormula:
    """Coefficients in seconds: fixed, per token, per sequence, per KV token, per pair of a new and a seen token."""

    fixed_s: float
    prefill_fixed_s: float
    tokens_s: Ramp
    sequences_s: Ramp
    kv_s: Ramp
    mixed_kv_s: float
    pair_s: float
    least_piece_tokens: int

    def step_s(self, work: StepWork) -> float:
        """Seconds of one step."""
        batch, kv_tokens, new = work.decode_batch, work.decode_kv_tokens, work.new_tokens
        if not new:
            return self._decode_fixed_s(batch) + self.kv_s(kv_tokens)
        pairs = work.pair_count * max(1.0, self.least_piece_tokens * work.piece_count / new)
        decode_s = self.sequences_s(batch) + self.kv_s(kv_tokens) + self.mixed_kv_s * kv_tokens
        return self.fixed_s + self.prefill_fixed_s + self.tokens_s(new + batch) + decode_s + self.pair_s * pairs

    def decode_steps_s(self, batch: int, kv_tokens: Floats) -> Floats:
        """Seconds of decode steps alone, one for each sum of contexts; the same as `step_s` for each."""
        return self._decode_fixed_s(batch) + self.kv_s.of_many(kv_tokens)

    def _decode_fixed_s(self, batch: int) -> float:
        return self.fixed_s + self.tokens_s(batch) + self.sequences_s(batch)
