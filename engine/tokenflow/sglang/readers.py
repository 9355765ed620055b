"""Who reads a request, and how fast: what the client's headers say, checked."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tokenflow.policy.buffer import MAX_RATE_TOK_S, MIN_RATE_TOK_S
from tokenflow.policy.states import RateSource, RequestClass
from tokenflow.sglang.settings import PluginSettings

RATE_HEADER = "x-tokenflow-rate"
CLASS_HEADER = "x-tokenflow-class"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


class BadReaderError(ValueError):
    """A header that cannot be taken; `parameter` names it."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of a stream. `rate_tok_s` None: nobody reads along, so there is no runway."""

    class_name: str
    rate_tok_s: float | None
    rate_source: RateSource


BATCH_READER = Reader(RequestClass.BATCH.value, None, RateSource.CLASS)


def parse_rate(text: str) -> float:
    """A rate in tokens per second from a header. Raises BadReaderError outside 0.1 to 10000."""
    rate_tok_s = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not MIN_RATE_TOK_S <= rate_tok_s <= MAX_RATE_TOK_S:
        raise BadReaderError(
            "X-TokenFlow-Rate",
            f"X-TokenFlow-Rate must be a number of tokens per second from {MIN_RATE_TOK_S:g} to "
            f"{MAX_RATE_TOK_S:g}, got {text[:40]!r}",
        )
    return rate_tok_s


def reader_of(headers: Mapping[str, str], settings: PluginSettings) -> Reader:
    """The reader that the headers describe: an explicit rate, else the class's, else the default.

    `headers` has lower-case names. Raises BadReaderError on a bad rate or an unknown class.
    """
    class_name = headers.get(CLASS_HEADER, "").strip()
    if class_name and class_name not in settings.classes:
        known = ", ".join(sorted(settings.classes))
        raise BadReaderError("X-TokenFlow-Class", f"unknown class {class_name[:40]!r}; the profile has: {known}")
    rate_text = headers.get(RATE_HEADER)
    if rate_text is not None:
        rate_tok_s = parse_rate(rate_text.strip())
        cap_tok_s = settings.classes[class_name].max_rate_tok_s if class_name else None
        if cap_tok_s is not None:
            rate_tok_s = min(rate_tok_s, cap_tok_s)
        return Reader(class_name or RequestClass.READING.value, rate_tok_s, RateSource.HEADER)
    if class_name:
        return Reader(class_name, settings.classes[class_name].rate_tok_s, RateSource.CLASS)
    return Reader(RequestClass.READING.value, settings.default_rate_tok_s, RateSource.DEFAULT)
