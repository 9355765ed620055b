"""BurstGPT: `Timestamp` in seconds, `Request tokens`, `Response tokens` (CC-BY-4.0, KDD 2025).

The files have six columns or eight; they are read by name. `Elapsed time` is end-to-end time and is not used.
"""

from collections.abc import Iterable, Iterator

from tokenflow.loadgen.traces.columns import csv_rows, number
from tokenflow.loadgen.traces.trace import TraceRequest

COLUMNS = frozenset({"Timestamp", "Request tokens", "Response tokens"})


def read(lines: Iterable[str]) -> Iterator[TraceRequest]:
    """Raises TraceRowError."""
    return csv_rows(lines, lambda row, line: number(row, "Timestamp", line), "Request tokens", "Response tokens")
