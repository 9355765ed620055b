"""What is known of one stream afterwards: when it was asked for, when each visible token came, how fast it was read."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.buffer import sane_rate

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """Times are seconds on one clock. `token_times_s` are those of delivery, one a visible token, ascending.

    `rate_tok_s` is None where nobody reads along: such a stream counts in TTFT and raw throughput only.
    """

    arrival_s: float
    token_times_s: Times = field(default_factory=lambda: np.empty(0))
    rate_tok_s: float | None = None

    @classmethod
    def of(cls, arrival_s: float, token_times_s: Sequence[float], rate_tok_s: float | None = None) -> "StreamRecord":
        """From any sequence. Times that run backwards (a clock's fault) count as standing still."""
        times = (
            np.maximum.accumulate(np.asarray(token_times_s, dtype=np.float64)) if len(token_times_s) else np.empty(0)
        )
        return cls(arrival_s, times, sane_rate(rate_tok_s))

    @property
    def token_count(self) -> int:
        return len(self.token_times_s)

    @property
    def ttft_s(self) -> float | None:
        """Time to first token: first visible token less arrival. None if there was none."""
        return float(self.token_times_s[0]) - self.arrival_s if self.token_count else None
