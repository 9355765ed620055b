"""What several seeds say together: a mean and the 95 % interval around it, by Student's t."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

# The 0.975 quantile of Student's t by degrees of freedom, from 1 on (NIST/SEMATECH e-Handbook of Statistical Methods).
_T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_T_975_FAR = 1.96


@dataclass(frozen=True, slots=True)
class Spread:
    """`half_width` is that of the 95 % confidence interval of the mean; None for a single value."""

    mean: float
    half_width: float | None
    count: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends of the 95 % interval."""
        return None if self.half_width is None else (self.mean - self.half_width, self.mean + self.half_width)


def spread(values: Sequence[float]) -> Spread:
    """Raises ValueError for no values: nothing can be said of none."""
    if not values:
        raise ValueError("no values")
    if len(values) == 1:
        return Spread(values[0], None, 1)
    return Spread(fmean(values), _t_975(len(values) - 1) * stdev(values) / math.sqrt(len(values)), len(values))


def paired_spread(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Of the differences ours - theirs, seed by seed: two policies see the same arrivals, so the interval is narrower
    than that of either. Raises ValueError where the numbers of values differ."""
    return spread([one - other for one, other in zip(ours, theirs, strict=True)])


def _t_975(freedom: int) -> float:
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    # Between 30 and infinity the quantile is nearly linear in 1 / degrees of freedom.
    return _T_975_FAR + (_T_975[-1] - _T_975_FAR) * len(_T_975) / freedom
