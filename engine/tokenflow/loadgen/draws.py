"""Seeded draws, one generator a subject: a change of the rates must not move the arrivals, the lengths or the prompts.

`tfctl bench` and `tfctl simulate` draw here, so that one seed means the same arrivals, rates and lengths in both.
"""

import random

from tokenflow.errors import UsageError
from tokenflow.loadgen.arrivals import Arrivals, Recorded
from tokenflow.loadgen.lengths import parse_lengths

FROM_TRACE = "trace"  # as a length law: the lengths that the trace recorded


def generator(seed: int, subject: str) -> random.Random:
    """Seeding with text is hashed by SHA-512, so that it is the same in every process."""
    return random.Random(f"{seed}:{subject}")


def draw_lengths(law: str, field: str, arrivals: Arrivals, count: int, rng: random.Random) -> list[int]:
    """`count` lengths in tokens for `field` (`input-tokens` or `output-tokens`). Raises UsageError."""
    if law != FROM_TRACE:
        return parse_lengths(law, field).draw(count, rng)
    if not isinstance(arrivals, Recorded):
        raise UsageError("lengths from a trace need its arrivals", hint="use trace:FILE for the arrivals", field=field)
    requests = arrivals.trace.requests[:count]
    return [row.input_tokens if field == "input-tokens" else row.output_tokens for row in requests]
