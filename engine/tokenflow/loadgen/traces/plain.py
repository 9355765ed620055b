"""A plain trace: `arrival_s, input_tokens, output_tokens`, for whoever brings arrivals of their own."""

from collections.abc import Iterable, Iterator

from tokenflow.loadgen.traces.columns import csv_rows, number
from tokenflow.loadgen.traces.trace import TraceRequest

COLUMNS = frozenset({"arrival_s", "input_tokens", "output_tokens"})


def read(lines: Iterable[str]) -> Iterator[TraceRequest]:
    """Raises TraceRowError."""
    return csv_rows(lines, lambda row, line: number(row, "arrival_s", line), "input_tokens", "output_tokens")
