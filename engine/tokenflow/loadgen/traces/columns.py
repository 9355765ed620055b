"""Reading figures out of rows by the name of their column, with an error that names the line."""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from tokenflow.loadgen.traces.trace import TraceRequest


class TraceRowError(ValueError):
    """A row that cannot be read. `line` counts from 1, the heading included."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def number(row: Mapping[str, object], column: str, line: int) -> float:
    """A finite number from 0 up."""
    value = row.get(column)
    try:
        found = float(str(value))
    except ValueError:
        found = math.nan
    if not 0.0 <= found < math.inf:
        raise TraceRowError(line, f"{column} is {value!r}, not a number from 0 up")
    return found


def count(row: Mapping[str, object], column: str, line: int) -> int:
    """A whole number from 0 up; some files write it as `472.0`."""
    found = number(row, column, line)
    if found != int(found):
        raise TraceRowError(line, f"{column} is {row.get(column)!r}, not a whole number")
    return int(found)


def csv_rows(
    lines: Iterable[str],
    arrival_s: Callable[[Mapping[str, object], int], float],
    input_column: str,
    output_column: str,
) -> Iterator[TraceRequest]:
    """The requests of a CSV file with a heading, whatever the order and number of its columns."""
    reader = csv.DictReader(lines)
    for row in reader:
        line = reader.line_num
        yield TraceRequest(arrival_s(row, line), count(row, input_column, line), count(row, output_column, line))
