"""Mooncake's traces: one JSON object a line, `timestamp` in milliseconds, `input_length`, `output_length` (Apache-2.0).

`hash_ids` name the 512-token blocks that requests share; prompts made here share nothing, so they are not used.
"""

from collections.abc import Iterable, Iterator

import msgspec

from tokenflow.loadgen.traces.columns import TraceRowError, count, number
from tokenflow.loadgen.traces.trace import TraceRequest


def read(lines: Iterable[str]) -> Iterator[TraceRequest]:
    """Raises TraceRowError."""
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            row = msgspec.json.decode(text, type=dict[str, object])
        except msgspec.DecodeError as error:  # a ValidationError is one
            raise TraceRowError(line, f"not a JSON object: {error}") from None
        arrival_s = number(row, "timestamp", line) / 1e3
        yield TraceRequest(arrival_s, count(row, "input_length", line), count(row, "output_length", line))
