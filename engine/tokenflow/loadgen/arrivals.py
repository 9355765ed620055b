"""When requests arrive: `burst:K[:GAP_S]`, `poisson:RATE`, `gamma:RATE:SHAPE`, `trace:FILE`."""

import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tokenflow.errors import UsageError
from tokenflow.loadgen.traces.read import read_trace
from tokenflow.loadgen.traces.trace import Trace

_HINT = "use burst:12, burst:8:2.5, poisson:4, gamma:4:0.5 or trace:FILE"


class Arrivals(Protocol):
    """A pattern of arrivals. A pattern draws from the generator it is given and from nothing else."""

    def times_s(self, count: int, rng: random.Random) -> list[float]:
        """Arrival times of `count` requests in seconds after the start, ascending from 0 on."""
        ...

    @property
    def usual_count(self) -> int | None:
        """How many requests the pattern holds by itself; None for one without an end."""
        ...


@dataclass(frozen=True, slots=True)
class Burst:
    """Groups of `size` requests at the same moment, `gap_s` apart; without a gap everything arrives at once."""

    size: int
    gap_s: float | None = None

    def times_s(self, count: int, rng: random.Random) -> list[float]:
        if self.gap_s is None:
            if count != self.size:
                raise UsageError(
                    f"burst:{self.size} is {self.size} requests, not {count}",
                    hint=f"give a gap between groups (burst:{self.size}:2.5) or ask for burst:{count}",
                    field="arrivals",
                )
            return [0.0] * count
        return [(index // self.size) * self.gap_s for index in range(count)]

    @property
    def usual_count(self) -> int | None:
        return self.size


@dataclass(frozen=True, slots=True)
class GammaProcess:
    """Gaps from a gamma distribution with mean 1 / `rate_per_s`. Shape 1 is a Poisson process, less is burstier."""

    rate_per_s: float
    shape: float = 1.0

    def times_s(self, count: int, rng: random.Random) -> list[float]:
        scale_s = 1.0 / (self.rate_per_s * self.shape)
        times_s: list[float] = []
        now_s = 0.0
        for _ in range(count):
            times_s.append(now_s)
            now_s += rng.gammavariate(self.shape, scale_s)
        return times_s

    @property
    def usual_count(self) -> int | None:
        return None


@dataclass(frozen=True, slots=True)
class Recorded:
    """The arrivals of a trace, `speedup` times as fast. The first `count` of them are taken."""

    trace: Trace
    speedup: float = 1.0

    def times_s(self, count: int, rng: random.Random) -> list[float]:
        requests = self.trace.requests
        if count > len(requests):
            raise UsageError(
                f"the trace holds {len(requests)} requests, not {count}",
                hint=f"ask for {len(requests)} or fewer",
                field="requests",
            )
        return [request.arrival_s / self.speedup for request in requests[:count]]

    @property
    def usual_count(self) -> int | None:
        return len(self.trace.requests)


def parse_arrivals(text: str, *, speedup: float = 1.0) -> Arrivals:
    """Raises UsageError for anything but the patterns of this module. `speedup` counts for traces alone."""
    if text.strip().startswith("trace:"):
        return Recorded(read_trace(Path(text.strip().removeprefix("trace:"))), speedup)
    kind, *values = text.strip().split(":")
    match kind, values:
        case "burst", [size]:
            return Burst(_count(size, text))
        case "burst", [size, gap]:
            return Burst(_count(size, text), _positive(gap, text))
        case "poisson", [rate]:
            return GammaProcess(_positive(rate, text))
        case "gamma", [rate, shape]:
            return GammaProcess(_positive(rate, text), _positive(shape, text))
    raise UsageError(f"unknown arrivals: {text!r}", hint=_HINT, field="arrivals")


def _count(value: str, text: str) -> int:
    if not (value.isascii() and value.isdigit()) or int(value) == 0:
        raise UsageError(f"{value!r} in {text!r} is not a number of requests", hint=_HINT, field="arrivals")
    return int(value)


def _positive(value: str, text: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0.0):
        raise UsageError(f"{value!r} in {text!r} is not a number above zero", hint=_HINT, field="arrivals")
    return number
