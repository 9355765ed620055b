"""How fast readers read: one number, or a mix such as `15:0.4,20:0.6` (rate in tok/s : share)."""

import math
import random
from dataclasses import dataclass

from tokenflow.errors import UsageError
from tokenflow.policy.buffer import MAX_RATE_TOK_S, MIN_RATE_TOK_S

_HINT = f"use one rate (6) or a mix (15:0.4,20:0.6), in tokens per second from {MIN_RATE_TOK_S:g} to {MAX_RATE_TOK_S:g}"


@dataclass(frozen=True, slots=True)
class RateMix:
    """Reading rates and their shares. The shares need not add up to one."""

    rates_tok_s: tuple[float, ...]
    shares: tuple[float, ...]

    def assign(self, count: int, rng: random.Random) -> list[float]:
        """`count` rates in random order, in the mix's proportions.

        The proportions are met as closely as whole streams allow (largest remainder) and not drawn one by one, so
        that a dozen streams already show the mix that was asked for.
        """
        total = sum(self.shares)
        exact = [share / total * count for share in self.shares]
        counts = [math.floor(value) for value in exact]
        by_remainder = sorted(range(len(exact)), key=lambda index: (counts[index] - exact[index], index))
        for index in by_remainder[: count - sum(counts)]:
            counts[index] += 1
        assigned = [rate for rate, times in zip(self.rates_tok_s, counts, strict=True) for _ in range(times)]
        assert len(assigned) == count
        rng.shuffle(assigned)
        return assigned


def parse_rates(text: str) -> RateMix:
    """Raises UsageError for rates outside the API's range and for shares that are not above zero."""
    rates: list[float] = []
    shares: list[float] = []
    for part in text.split(","):
        rate_text, separator, share_text = part.strip().partition(":")
        rate = _number(rate_text)
        share = _number(share_text) if separator else 1.0
        if not MIN_RATE_TOK_S <= rate <= MAX_RATE_TOK_S:
            raise UsageError(f"{rate_text!r} in {text!r} is not a usable rate", hint=_HINT, field="rates")
        if not 0.0 < share < math.inf:
            raise UsageError(f"{share_text!r} in {text!r} is not a share above zero", hint=_HINT, field="rates")
        rates.append(rate)
        shares.append(share)
    return RateMix(tuple(rates), tuple(shares))


def _number(text: str) -> float:
    """NaN, which fails every comparison, where `text` is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
