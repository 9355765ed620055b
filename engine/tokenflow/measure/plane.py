"""A plane through step times: what the policy and the simulator take a step to be."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def fit_plane(features: Sequence[Sequence[float]], times_s: Sequence[float]) -> tuple[list[float], float]:
    """Coefficients, none negative, by least squares of the relative error; and the mean relative distance.

    One row of `features` for each time, all of the same length. A column that is all zero gets 0.
    """
    assert len(features) == len(times_s) > 0
    rows, target = np.array(features, np.float64), np.array(times_s, np.float64)
    assert (target > 0).all()
    free = [column for column in range(rows.shape[1]) if rows[:, column].any()]
    solved: NDArray[np.floating[Any]] = np.zeros(0)
    while free:
        solved, *_ = np.linalg.lstsq(rows[:, free] / target[:, None], np.ones(len(target)), rcond=None)
        if (solved >= 0).all():
            break
        worst = int(np.argmin(solved * np.abs(rows[:, free]).mean(axis=0)))
        free.pop(worst)
    coefficients = [0.0] * rows.shape[1]
    for column, value in zip(free, solved.tolist(), strict=False):
        coefficients[column] = value
    error = float(np.mean(np.abs(rows @ np.array(coefficients) / target - 1.0)))
    return coefficients, error
