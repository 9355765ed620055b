"""Where in time the view stands: live, frozen, or in the past. Pure."""

from dataclasses import dataclass

from tokenflow_tui.history import History


@dataclass(slots=True)
class Clock:
    """`at_s`: the wall time that is shown; None follows what comes in. A frozen view stands at what was live."""

    history: History
    at_s: float | None = None
    is_frozen: bool = False

    @property
    def is_live(self) -> bool:
        return self.at_s is None

    @property
    def index(self) -> int | None:
        """The moment that is shown; None where there is none yet."""
        count = len(self.history)
        if not count:
            return None
        return count - 1 if self.at_s is None else self.history.index_at(self.at_s)

    @property
    def behind_s(self) -> float:
        """How long before the last moment the view stands, in seconds."""
        index = self.index
        if index is None:
            return 0.0
        return self.history.stamp_s(len(self.history) - 1) - self.history.stamp_s(index)

    def freeze(self) -> None:
        """Stays at what is shown now."""
        index = self.index
        if index is not None:
            self.at_s, self.is_frozen = self.history.stamp_s(index), True

    def follow(self) -> None:
        self.at_s, self.is_frozen = None, False

    def step(self, by_s: float) -> None:
        """That many seconds back or forth, at least one moment. Past the last one it is live again."""
        here = self.index
        if here is None:
            return
        last = len(self.history) - 1
        there = self.history.index_at(self.history.stamp_s(here) + by_s)
        if there == here:
            there = min(max(here + (1 if by_s > 0 else -1), 0), last)
        if there == last and by_s > 0:
            self.follow()
        else:
            self.at_s, self.is_frozen = self.history.stamp_s(there), False
