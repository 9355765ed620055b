"""How long prompts and answers are: `fixed:N`, `uniform:LEAST:GREATEST`, `normal:MEAN[:SD]`, in tokens."""

import math
import random
from dataclasses import dataclass
from typing import Protocol

from tokenflow.errors import UsageError

_HINT = "use fixed:128, uniform:64:128, normal:256 or normal:256:64"
_USUAL_DEVIATION = 0.25  # of the mean, where none is given


class LengthLaw(Protocol):
    """Draws lengths from the generator it is given and from nothing else."""

    def draw(self, count: int, rng: random.Random) -> list[int]:
        """`count` lengths of one token or more."""
        ...

    @property
    def mean_tokens(self) -> float:
        """Of the law, before anything is cut."""
        ...


@dataclass(frozen=True, slots=True)
class Uniform:
    """Whole numbers between two bounds, both included. Equal bounds draw nothing: the length is fixed."""

    least: int
    greatest: int

    def draw(self, count: int, rng: random.Random) -> list[int]:
        return [rng.randint(self.least, self.greatest) for _ in range(count)]

    @property
    def mean_tokens(self) -> float:
        return (self.least + self.greatest) / 2


@dataclass(frozen=True, slots=True)
class Normal:
    """A normal law, rounded, and cut at 1."""

    mean: float
    deviation: float

    def draw(self, count: int, rng: random.Random) -> list[int]:
        return [max(1, round(rng.gauss(self.mean, self.deviation))) for _ in range(count)]

    @property
    def mean_tokens(self) -> float:
        return self.mean


def parse_lengths(text: str, field: str) -> LengthLaw:
    """Raises UsageError naming `field` (`input-tokens`, `output-tokens`) for anything but the laws of this module."""
    kind, *values = text.strip().split(":")
    match kind, values:
        case "fixed", [tokens]:
            return Uniform(_count(tokens, text, field), _count(tokens, text, field))
        case "uniform", [least, greatest]:
            law = Uniform(_count(least, text, field), _count(greatest, text, field))
            if law.least > law.greatest:
                raise UsageError(f"{text!r}: the least length is above the greatest", hint=_HINT, field=field)
            return law
        case "normal", [mean]:
            return Normal(_positive(mean, text, field), _positive(mean, text, field) * _USUAL_DEVIATION)
        case "normal", [mean, deviation]:
            return Normal(_positive(mean, text, field), _positive(deviation, text, field))
    raise UsageError(f"unknown lengths: {text!r}", hint=_HINT, field=field)


def _count(value: str, text: str, field: str) -> int:
    if not (value.isascii() and value.isdigit()) or int(value) == 0:
        raise UsageError(f"{value!r} in {text!r} is not a number of tokens", hint=_HINT, field=field)
    return int(value)


def _positive(value: str, text: str, field: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0.0):
        raise UsageError(f"{value!r} in {text!r} is not a number above zero", hint=_HINT, field=field)
    return number
