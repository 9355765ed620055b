"""Azure's LLM inference traces of 2023 and 2024: `TIMESTAMP, ContextTokens, GeneratedTokens` (CC-BY-4.0, Splitwise)."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from tokenflow.loadgen.traces.columns import TraceRowError, csv_rows
from tokenflow.loadgen.traces.trace import TraceRequest

COLUMNS = frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"})


def read(lines: Iterable[str]) -> Iterator[TraceRequest]:
    """Raises TraceRowError."""
    return csv_rows(lines, _arrival_s, "ContextTokens", "GeneratedTokens")


def _arrival_s(row: Mapping[str, object], line: int) -> float:
    """`2023-11-16 18:17:03.9799600`, or with `+00:00` behind it. Digits beyond the microsecond are cut."""
    text = str(row["TIMESTAMP"])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise TraceRowError(line, f"TIMESTAMP is {text!r}, not a date and time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
