"""What every trace comes down to."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class TraceFormat(StrEnum):
    """Whose files they are; also the `dataset_name` of a benchmark's record."""

    AZURE = "azure"
    BURSTGPT = "burstgpt"
    MOONCAKE = "mooncake"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One recorded request. `arrival_s` is on the trace's own clock."""

    arrival_s: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival, the first at 0 s. `dropped_count` rows had no input or no output: failed ones."""

    format: TraceFormat
    requests: tuple[TraceRequest, ...]
    dropped_count: int = 0

    @classmethod
    def of(cls, kind: TraceFormat, rows: Iterable[TraceRequest]) -> "Trace":
        """Sorts, starts the clock at the first row that counts, and drops rows without input or output."""
        kept: list[TraceRequest] = []
        dropped_count = 0
        for row in rows:
            if row.input_tokens > 0 and row.output_tokens > 0:
                kept.append(row)
            else:
                dropped_count += 1
        kept.sort(key=lambda row: row.arrival_s)
        start_s = kept[0].arrival_s if kept else 0.0
        shifted = (TraceRequest(row.arrival_s - start_s, row.input_tokens, row.output_tokens) for row in kept)
        return cls(kind, tuple(shifted), dropped_count)
