"""The last minutes of the view, or a whole recording: packed moments, and what is drawn over time."""

from bisect import bisect_right
from collections.abc import Iterator

from tokenflow_tui.moment import Moment, Packed, pack

KEPT_S = 900.0
KEPT_BYTES = 48 * 2**20
_CUT_COUNT = 64  # the front of the list is cut by so many at a time


class History:
    """Moments in order of time. The live one forgets what is older than `kept_s` or beyond `kept_bytes`."""

    def __init__(self, kept_s: float = KEPT_S, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_s = kept_s
        self._kept_bytes = kept_bytes
        self._bytes = 0
        self._moments: list[Packed] = []

    @classmethod
    def of(cls, moments: list[Packed]) -> "History":
        """A recording's: nothing is forgotten."""
        found = cls(float("inf"), 2**62)
        found._moments = moments
        return found

    def __len__(self) -> int:
        return len(self._moments)

    def append(self, moment: Moment, packed: Packed | None = None) -> None:
        """Takes a moment, packed where that was done before. Its time is never before that of the last one."""
        if self._moments and moment.at_s < self._moments[-1].at_s:
            moment.at_s, packed = self._moments[-1].at_s, None  # the host's clock was set back
        packed = packed or pack(moment)
        self._moments.append(packed)
        self._bytes += len(packed.body)
        self._forget(moment.at_s)

    def _forget(self, now_s: float) -> None:
        count = 0
        held_bytes = self._bytes
        while count < len(self._moments) - 1 and (
            held_bytes > self._kept_bytes or now_s - self._moments[count].at_s > self._kept_s
        ):
            held_bytes -= len(self._moments[count].body)
            count += 1
        if count >= _CUT_COUNT or held_bytes < self._bytes - self._kept_bytes // 8:
            del self._moments[:count]
            self._bytes = held_bytes

    def moment(self, index: int) -> Moment:
        """Raises `UnreadableError`, and IndexError."""
        return self._moments[index].moment()

    def stamp_s(self, index: int) -> float:
        return self._moments[index].at_s

    def index_at(self, at_s: float) -> int:
        """The last moment at or before `at_s`, or the first one."""
        return max(bisect_right(self._moments, at_s, key=lambda packed: packed.at_s) - 1, 0)

    def packed(self, first: int, last: int) -> Iterator[Packed]:
        """Those of the indices `first` to `last`, both included."""
        yield from self._moments[max(first, 0) : last + 1]
