"""Capacity: what the engine could generate per second at the batch that could run, not at the one that does."""

import numpy as np
from numpy.typing import NDArray

DECODE_SCALE = (16.0, 16_384.0)
PREFILL_SCALE = (8.0, 512.0)


class StepTimeFit:
    """Online fit of T(B, S) = c0 + c1·B + c2·S to step times in seconds: batch B and tokens S in all.

    For decode steps S is the context; for prefill steps it is the new tokens (`scale` says which sizes are usual).
    Ridge regression towards a prior, with exponential forgetting. A steady batch says nothing about other batches
    (its rows are all alike), and then the prior decides the directions that were not seen. Coefficients are never
    negative. Decode and prefill steps each have a fit of their own.
    """

    def __init__(
        self,
        prior: tuple[float, float, float] = (0.02, 2e-4, 1e-7),
        *,
        scale: tuple[float, float] = DECODE_SCALE,
        forgetting: float = 0.995,
        ridge: float = 1.0,
    ) -> None:
        assert all(value >= 0 for value in prior)
        assert 0 < forgetting <= 1
        self._scale = np.array([1.0, *scale])
        self._prior = np.array(prior) * self._scale
        self._forgetting = forgetting
        self._ridge = ridge
        self._gram = np.zeros((3, 3))
        self._moment = np.zeros(3)
        self._solved: NDArray[np.float64] | None = None
        self.count = 0

    def observe(self, batch: int, tokens: float, step_s: float) -> None:
        """Takes in one step. Values that cannot be (no batch, no time, not finite) are dropped."""
        if batch < 1 or not (np.isfinite(tokens) and np.isfinite(step_s)) or tokens < 0 or step_s <= 0:
            return
        features = np.array([1.0, batch, tokens]) / self._scale
        self._gram = self._gram * self._forgetting + np.outer(features, features)
        self._moment = self._moment * self._forgetting + features * step_s
        self._solved = None
        self.count += 1

    @property
    def coefficients(self) -> tuple[float, float, float]:
        """c0 in seconds, c1 in seconds per request, c2 in seconds per token."""
        if self._solved is None:
            self._solved = self._solve()
        c0, c1, c2 = (self._solved / self._scale).tolist()
        return c0, c1, c2

    def step_s(self, batch: float, tokens: float) -> float:
        """The step to expect, in seconds."""
        c0, c1, c2 = self.coefficients
        return c0 + c1 * batch + c2 * tokens

    def _solve(self) -> NDArray[np.float64]:
        """Coefficients that turn out negative are held at 0 and the others fitted again (at most three times)."""
        gram = self._gram + self._ridge * np.eye(3)
        moment = self._moment + self._ridge * self._prior
        solution: NDArray[np.float64] = np.linalg.solve(gram, moment)
        if solution.min() >= 0.0:
            return solution
        free = solution >= 0.0
        while free.any():
            solution = np.zeros(3)
            solution[free] = np.linalg.solve(gram[np.ix_(free, free)], moment[free])
            negative = solution < 0.0
            if not negative.any():
                break
            free &= ~negative
        else:
            solution = np.zeros(3)
        return np.maximum(solution, 0.0)


def capacity_tok_s(
    fit: StepTimeFit,
    *,
    slot_count: int,
    kv_total_tokens: float,
    mean_context_tokens: float,
    prefill_ratio: float = 0.0,
    batch_ratio: float = 0.0,
) -> float | None:
    """Γ in tokens per second: (1 − prefill − batch shares) · max of B/T(B, B·L) over the batches that fit.

    `prefill_ratio` is the share of time that goes into prefill, `batch_ratio` the share of tokens that nobody reads
    along. None where nothing fits or the fit knows nothing.
    """
    mean_context_tokens = max(mean_context_tokens, 1.0)
    largest = int(min(slot_count, kv_total_tokens // mean_context_tokens))
    if largest < 1:
        return None
    # B/T rises with B for every c0 >= 0, so the largest batch is the best one.
    step_s = fit.step_s(largest, largest * mean_context_tokens)
    if not step_s > 0.0:
        return None
    share = 1.0 - min(max(prefill_ratio, 0.0), 1.0) - min(max(batch_ratio, 0.0), 1.0)
    return max(share, 0.0) * largest / step_s
