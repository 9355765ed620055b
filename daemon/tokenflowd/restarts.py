"""How often, and how soon, an engine that failed is started again. Pure: the time is an argument."""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartLimits:
    """`count` restarts within `window_s` at most; none with 0. The wait doubles from one to the next."""

    count: int
    window_s: float
    backoff_s: float
    backoff_most_s: float


class RestartBook:
    """The restarts of the last `window_s`. An engine that serves for that long starts with a clean page."""

    def __init__(self, limits: RestartLimits) -> None:
        self.limits = limits
        self._begun_s: deque[float] = deque()

    def count(self, now_s: float) -> int:
        """Restarts within the window that ends now."""
        while self._begun_s and now_s - self._begun_s[0] > self.limits.window_s:
            self._begun_s.popleft()
        return len(self._begun_s)

    def wait_s(self, now_s: float) -> float | None:
        """How long to wait before the next one; None where the limit is reached."""
        done = self.count(now_s)
        if done >= self.limits.count:
            return None
        return min(self.limits.backoff_s * 2.0**done, self.limits.backoff_most_s)

    def begin(self, now_s: float) -> None:
        self._begun_s.append(now_s)
