"""Showing the same thing again and again: in place on a terminal, one after the other in a pipe."""

import sys

from tfctl.output import write_line

_HOME_AND_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def watch_silence_s(interval_s: float) -> float:
    """How long a watched stream may be silent before the daemon is taken for hung, in seconds."""
    return max(10.0, 4 * interval_s)


class Screen:
    """Shows blocks of lines. `is_repeated`: a later block takes the place of the one before."""

    def __init__(self, *, is_repeated: bool) -> None:
        self._clears = is_repeated and sys.stdout is not None and sys.stdout.isatty()
        self._separates = is_repeated and not self._clears
        self._is_first = True

    def show(self, lines: list[str]) -> None:
        text = "\n".join(lines)
        if self._clears:
            text = _HOME_AND_CLEAR + text
        elif self._separates and not self._is_first:
            text = "\n" + text
        self._is_first = False
        write_line(text)
