"""Who reads a request, and how fast: what the client's headers and body say, checked."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenflow.policy.buffer import MAX_RATE_TOK_S, MIN_RATE_TOK_S
from tokenflow.policy.states import RateSource, RequestClass
from tokenflow.sglang.settings import ClassSettings, PluginSettings

RATE_HEADER = "x-tokenflow-rate"
CLASS_HEADER = "x-tokenflow-class"
BODY_FIELD = "tokenflow"
_SHOWN_CHARACTERS = 40  # of a bad value, in the message
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


class BadReaderError(ValueError):
    """A header or field that cannot be taken; `parameter` names it."""

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader of a stream. `rate_tok_s` None: nobody reads along, so there is no runway.

    `max_rate_tok_s` bounds whatever its acks say later. `needs_ack`: nothing is known of it before its first ack.
    """

    class_name: str
    rate_tok_s: float | None
    rate_source: RateSource
    max_rate_tok_s: float | None = None
    needs_ack: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client has said about its reader. None: it has said nothing."""

    class_name: str | None = None
    rate_tok_s: float | None = None
    rate_source: RateSource = RateSource.HEADER

    def under(self, stronger: "Wish") -> "Wish":
        """Both together; where both speak, `stronger` holds."""
        rated = self if stronger.rate_tok_s is None else stronger
        return Wish(stronger.class_name or self.class_name, rated.rate_tok_s, rated.rate_source)


BATCH_READER = Reader(RequestClass.BATCH.value, None, RateSource.CLASS)


def wish_of_headers(headers: Mapping[str, str], settings: PluginSettings) -> Wish:
    """`headers` has lower-case names. Raises BadReaderError on a bad rate or an unknown class."""
    class_name = headers.get(CLASS_HEADER, "").strip() or None
    if class_name is not None:
        check_class("X-TokenFlow-Class", class_name, settings)
    rate_text = headers.get(RATE_HEADER)
    return Wish(class_name, None if rate_text is None else parse_rate(rate_text.strip()))


def wish_of_body(field: Any, settings: PluginSettings) -> Wish:
    """`field` is the body's field `tokenflow`, decoded. Raises BadReaderError where it or a part of it is bad."""
    if field is None:
        return Wish()
    if not isinstance(field, dict):
        raise BadReaderError(BODY_FIELD, f'{BODY_FIELD} must be an object such as {{"rate": 20, "class": "agent"}}')
    for name in field:
        if name not in ("rate", "class"):
            shown = str(name)[:_SHOWN_CHARACTERS]
            raise BadReaderError(f"{BODY_FIELD}.{shown}", f"{BODY_FIELD} has rate and class, not {shown!r}")
    class_name, rate = field.get("class"), field.get("rate")
    if class_name is not None:
        check_class(f"{BODY_FIELD}.class", class_name, settings)
    rate_tok_s = None if rate is None else check_rate(f"{BODY_FIELD}.rate", rate)
    return Wish(class_name, rate_tok_s, RateSource.BODY)


def reader_of(wish: Wish, settings: PluginSettings) -> Reader:
    """An explicit rate, else the class's, else the default; never above the cap of the class.

    A class that nobody reads along with stays so, whatever rate comes with it.
    """
    class_name = wish.class_name or RequestClass.READING.value
    kind = settings.classes[class_name]
    rate_tok_s, rate_source = wish.rate_tok_s, wish.rate_source
    if kind.rate_tok_s is None or (rate_tok_s is None and wish.class_name):
        rate_tok_s, rate_source = kind.rate_tok_s, RateSource.CLASS
    elif rate_tok_s is None:
        rate_tok_s, rate_source = settings.default_rate_tok_s, RateSource.DEFAULT
    return Reader(class_name, capped(rate_tok_s, kind), rate_source, kind.max_rate_tok_s, bool(kind.needs_ack))


def capped(rate_tok_s: float | None, kind: ClassSettings) -> float | None:
    """The rate that a reader of this class gets: a client cannot claim its way to the front."""
    if rate_tok_s is None or kind.max_rate_tok_s is None:
        return rate_tok_s
    return min(rate_tok_s, kind.max_rate_tok_s)


def parse_rate(text: str) -> float:
    """A rate in tokens per second from a header. Raises BadReaderError outside 0.1 to 10000."""
    return _in_bounds("X-TokenFlow-Rate", float(text) if _NUMBER.fullmatch(text) else math.nan, text)


def check_rate(parameter: str, value: Any) -> float:
    """A rate in tokens per second from JSON. Raises BadReaderError on what is no number from 0.1 to 10000."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # A whole number may be too large for a float; the comparison is exact.
    return _in_bounds(parameter, value if is_number else math.nan, value)


def check_class(parameter: str, value: Any, settings: PluginSettings) -> None:
    """Raises BadReaderError on what is no class of the profile."""
    if not isinstance(value, str) or value not in settings.classes:
        known = ", ".join(sorted(settings.classes))
        raise BadReaderError(parameter, f"unknown class {_shown(value)}; the profile has: {known}")


def _in_bounds(parameter: str, rate_tok_s: float, given: Any) -> float:
    if not MIN_RATE_TOK_S <= rate_tok_s <= MAX_RATE_TOK_S:
        raise BadReaderError(
            parameter,
            f"{parameter} must be a number of tokens per second from {MIN_RATE_TOK_S:g} to "
            f"{MAX_RATE_TOK_S:g}, got {_shown(given)}",
        )
    return float(rate_tok_s)


def _shown(value: Any) -> str:
    if isinstance(value, int) and abs(value) > MAX_RATE_TOK_S:
        return "a larger number" if value > 0 else "a negative number"
    return repr(value if isinstance(value, float | int) or value is None else str(value)[:_SHOWN_CHARACTERS])
