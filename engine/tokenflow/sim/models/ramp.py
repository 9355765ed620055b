"""A function that grows piece by piece: flat or linear between its knots, never falling."""

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Ramp:
    """A piecewise linear function with f(0) = 0. `slopes[i]` holds from `knots[i]` to the next; the last has no end."""

    knots: tuple[float, ...]
    slopes: tuple[float, ...]
    values: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        assert self.knots[0] == 0, self.knots
        assert list(self.knots) == sorted(set(self.knots)), self.knots
        assert len(self.knots) == len(self.slopes), (self.knots, self.slopes)
        assert min(self.slopes) >= 0.0, self.slopes
        values = [0.0]
        for index in range(len(self.knots) - 1):
            values.append(values[-1] + self.slopes[index] * (self.knots[index + 1] - self.knots[index]))
        object.__setattr__(self, "values", tuple(values))

    def __call__(self, x: float) -> float:
        """f(x) for x >= 0."""
        place = bisect_right(self.knots, x) - 1
        return self.values[place] + self.slopes[place] * (x - self.knots[place])

    def of_many(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """f at each of `x`, all >= 0, to the last bit what a call gives."""
        place = np.searchsorted(self.knots, x, side="right") - 1
        knots, slopes, values = (np.asarray(one) for one in (self.knots, self.slopes, self.values))
        result: NDArray[np.float64] = values[place] + slopes[place] * (x - knots[place])
        return result
