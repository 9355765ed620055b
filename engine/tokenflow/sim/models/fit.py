"""Fits the step formula to measured steps: least squares of the relative error, no coefficient below zero."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from tokenflow.sim.models.formula import StepFormula
from tokenflow.sim.models.ramp import Ramp
from tokenflow.sim.performance import Floats, StepWork

TOKEN_KNOTS = (0, 16, 64, 128, 256, 288, 512, 1024, 2048)  # 256 to 288: one tile of the GEMMs more
SEQUENCE_KNOTS = (0, 16, 64, 128, 256)
KV_KNOTS = (0, 4096, 16384, 65536, 262144)
_Knots = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
_LEAST_PIECES = (0, 64, 128, 256, 512)
_SUPPORTED_SHARE = 0.75  # a knot above this share of the greatest value has too few samples beyond it
_DECODE_WEIGHT = 2.0  # decode steps are the many: their error counts twice


class StepKind(StrEnum):
    """What a step does."""

    DECODE = "decode"
    PREFILL = "prefill"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class StepSample:
    """A measured step: what it computed and how long it took."""

    work: StepWork
    step_s: float

    @property
    def kind(self) -> StepKind:
        if not self.work.new_tokens:
            return StepKind.DECODE
        return StepKind.MIXED if self.work.decode_batch else StepKind.PREFILL


@dataclass(frozen=True, slots=True)
class Residual:
    """Relative errors (prediction / measurement - 1) of the steps of one kind."""

    kind: StepKind
    count: int
    mean_abs_ratio: float
    max_abs_ratio: float
    bias_ratio: float


def fit_formula(samples: Sequence[StepSample]) -> StepFormula:
    """The best formula over the least piece sizes tried. Terms that no sample speaks of become zero."""
    assert samples
    durations_s = np.array([sample.step_s for sample in samples])
    weights = np.array([_DECODE_WEIGHT if sample.kind is StepKind.DECODE else 1.0 for sample in samples])
    knots = _supported_knots(samples)
    best: tuple[float, int, Floats] | None = None
    for least_piece in _LEAST_PIECES:
        columns = _columns(samples, knots, least_piece)
        scale = np.maximum(columns.max(axis=0), 1e-30)
        relative = columns / scale / durations_s[:, None]
        found = non_negative_least_squares(relative * weights[:, None], weights)
        error = float((((relative @ found - 1.0) * weights) ** 2).sum())
        if best is None or error < best[0] * (1.0 - 1e-9):
            best = (error, least_piece, found / scale)
    assert best is not None
    return _formula(best[2].tolist(), knots, best[1])


def residuals(formula: StepFormula, samples: Sequence[StepSample]) -> list[Residual]:
    """One entry for each kind of step that occurs."""
    found = []
    for kind in StepKind:
        errors = np.array([formula.step_s(one.work) / one.step_s - 1.0 for one in samples if one.kind is kind])
        if errors.size:
            worst, mean = float(np.abs(errors).max()), float(np.abs(errors).mean())
            found.append(Residual(kind, int(errors.size), mean, worst, float(errors.mean())))
    return found


def non_negative_least_squares(matrix: Floats, target: Floats) -> Floats:
    """The x >= 0 that minimises |matrix·x - target| (Lawson and Hanson, Solving Least Squares Problems, 1974)."""
    count = matrix.shape[1]
    x, is_free = np.zeros(count), np.zeros(count, dtype=np.bool_)
    tolerance = 1e-10 * float(np.abs(matrix.T @ target).max())
    for _ in range(10 * count):
        gradient = np.where(is_free, -np.inf, matrix.T @ (target - matrix @ x))
        if gradient.max() <= tolerance:
            break
        is_free[int(np.argmax(gradient))] = True
        while True:
            candidate = np.zeros(count)
            candidate[is_free] = np.linalg.lstsq(matrix[:, is_free], target, rcond=None)[0]
            negative = is_free & (candidate <= 0.0)
            if not negative.any():
                x = candidate
                break
            step = float((x[negative] / np.maximum(x[negative] - candidate[negative], 1e-300)).min())
            x = x + step * (candidate - x)
            is_free &= x > 1e-14
            x[~is_free] = 0.0
    return x


def _supported_knots(samples: Sequence[StepSample]) -> _Knots:
    """For new tokens, sequences and KV: what is beyond the last knot that samples speak of goes on as they end."""
    works = [sample.work for sample in samples]
    greatest = (
        max(work.new_tokens + work.decode_batch for work in works),
        max(work.decode_batch for work in works),
        max(work.decode_kv_tokens for work in works),
    )
    tokens, sequences, kv = (
        tuple(knot for knot in knots if knot == 0 or knot < _SUPPORTED_SHARE * most)
        for knots, most in zip((TOKEN_KNOTS, SEQUENCE_KNOTS, KV_KNOTS), greatest, strict=True)
    )
    return tokens, sequences, kv


def _columns(samples: Sequence[StepSample], knots: _Knots, least_piece: int) -> Floats:
    works = [sample.work for sample in samples]
    new = np.array([work.new_tokens for work in works], dtype=np.float64)
    pieces = np.array([work.piece_count for work in works], dtype=np.float64)
    pairs = np.array([work.pair_count for work in works])
    sequences = np.array([work.decode_batch for work in works], dtype=np.float64)
    kv = np.array([work.decode_kv_tokens for work in works])
    prefills = (new > 0).astype(np.float64)
    columns = [np.ones_like(new), prefills]
    for values, starts in zip((new + sequences, sequences, kv), knots, strict=True):
        ends = (*starts[1:], np.inf)
        columns += [np.clip(values, start, end) - start for start, end in zip(starts, ends, strict=True)]
    columns += [kv * prefills, pairs * np.maximum(1.0, least_piece * pieces / np.maximum(new, 1.0))]
    return np.array(columns).T


def _formula(coefficients: list[float], knots: _Knots, least_piece: int) -> StepFormula:
    ends = np.cumsum([2, *map(len, knots)]).tolist()
    tokens, sequences, kv = (
        Ramp(starts, tuple(coefficients[ends[index] : ends[index + 1]])) for index, starts in enumerate(knots)
    )
    return StepFormula(
        fixed_s=coefficients[0],
        prefill_fixed_s=coefficients[1],
        tokens_s=tokens,
        sequences_s=sequences,
        kv_s=kv,
        mixed_kv_s=coefficients[-2],
        pair_s=coefficients[-1],
        least_piece_tokens=least_piece,
    )
