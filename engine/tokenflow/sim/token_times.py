"""When tokens were made: one shared row of times for everybody who decodes, so that a step costs the same for all."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_FIRST_CAPACITY = 4096
FLUSH_COUNT = 65_536


class DecodeTimes:
    """Times of the steps in which every running stream made a token, by number."""

    def __init__(self) -> None:
        self._times_s = np.empty(_FIRST_CAPACITY)
        self.count = 0

    def append(self, times_s: Floats) -> None:
        needed = self.count + len(times_s)
        if needed > len(self._times_s):
            grown = np.empty(max(needed, 2 * len(self._times_s)))
            grown[: self.count] = self._times_s[: self.count]
            self._times_s = grown
        self._times_s[self.count : needed] = times_s
        self.count = needed

    def copy_from(self, start: int) -> Floats:
        """All from number `start` on."""
        return self._times_s[start : self.count].copy()

    def clear(self) -> None:
        """Forgets all; numbers start at 0 again. Whoever runs has copied his own before."""
        self.count = 0


class TokenTimes:
    """The times of one stream's tokens: pieces that are its own, and the open one in the shared row."""

    __slots__ = ("_open_from", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[Floats | list[float]] = []
        self._open_from: int | None = None

    def add(self, time_s: float) -> None:
        """A token made in a step of its own kind (a prefill)."""
        assert self._open_from is None
        if self._pieces and isinstance(self._pieces[-1], list):
            self._pieces[-1].append(time_s)
        else:
            self._pieces.append([time_s])

    def open(self, decode: DecodeTimes) -> None:
        """From the next decode step on it makes a token in each."""
        assert self._open_from is None
        self._open_from = decode.count

    def close(self, decode: DecodeTimes) -> None:
        """It runs no longer."""
        if self._open_from is not None:
            if decode.count > self._open_from:
                self._pieces.append(decode.copy_from(self._open_from))
            self._open_from = None

    def all_s(self) -> Floats:
        """Ascending. Only after `close`."""
        assert self._open_from is None
        if not self._pieces:
            return np.empty(0)
        return np.concatenate([np.asarray(piece, dtype=np.float64) for piece in self._pieces])
