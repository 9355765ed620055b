"""Plays a recording: moves the clock as time goes by. Pure."""

from tokenflow_tui.clock import Clock

_FASTEST = 64.0
_SLOWEST = 0.25


class Player:
    """Begins at the first moment, playing."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.speed = 1.0
        self.is_playing = True
        clock.at_s = clock.history.stamp_s(0)

    @property
    def _last_s(self) -> float:
        return self.clock.history.stamp_s(len(self.clock.history) - 1)

    def advance(self, elapsed_s: float) -> bool:
        """Whether the clock has moved. At the end it stops."""
        at_s = self.clock.at_s
        if not self.is_playing or at_s is None:
            return False
        self.clock.at_s = min(at_s + elapsed_s * self.speed, self._last_s)
        self.is_playing = self.clock.at_s < self._last_s
        return self.clock.at_s != at_s

    def toggle(self) -> None:
        """Play or pause; at the end, from the start again."""
        if not self.is_playing and self.clock.at_s == self._last_s:
            self.clock.at_s = self.clock.history.stamp_s(0)
        self.is_playing = not self.is_playing

    def step(self, by_s: float) -> None:
        """Back or forth, within the recording; pauses."""
        first_s = self.clock.history.stamp_s(0)
        self.is_playing = False
        self.clock.step(by_s)
        if self.clock.at_s is None:
            self.clock.at_s = self._last_s
        self.clock.at_s = max(self.clock.at_s, first_s)

    def change_speed(self, factor: float) -> None:
        self.speed = min(max(self.speed * factor, _SLOWEST), _FASTEST)

    @property
    def word(self) -> str:
        """`replay`, `replay x4`, `replay paused`"""
        if not self.is_playing:
            return "replay paused"
        return "replay" if self.speed == 1.0 else f"replay x{self.speed:g}"
