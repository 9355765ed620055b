"""Which rows of the request table somebody wants to see, and in which order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from tokenflow.errors import UsageError
from tokenflow.policy.states import RequestState
from tokenflow.wire import RequestRow

_ATTRIBUTES = {"class" if name == "class_" else name: name for name in RequestRow.__struct_fields__}
DEFAULT_SORT = "runway_s"
Choice = TypeVar("Choice", bound=StrEnum)
_TRUE, _FALSE = ("1", "true", "yes"), ("", "0", "false", "no")


@dataclass(frozen=True, slots=True)
class RequestQuery:
    """`states` None: live requests only. `sort_key` is a column's name; nulls come last in both directions."""

    states: frozenset[RequestState] | None = None
    is_all: bool = False
    sort_key: str = DEFAULT_SORT
    is_descending: bool = False
    limit: int | None = None

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> "RequestQuery":
        """From `state=a,b&sort=-age_s&limit=10&all=1`. Raises UsageError."""
        key = parameters.get("sort") or DEFAULT_SORT
        if key.removeprefix("-") not in _ATTRIBUTES:
            raise UsageError(
                f"{key!r} is no column to sort by; there are: {', '.join(_ATTRIBUTES)}",
                hint="tfctl ps --sort runway_s; -runway_s turns the order round",
                field="sort",
            )
        return cls(
            states=_states(parameters.get("state", "")),
            is_all=flag(parameters, "all"),
            sort_key=key.removeprefix("-"),
            is_descending=key.startswith("-"),
            limit=whole_number(parameters, "limit"),
        )

    def select(self, rows: Sequence[RequestRow]) -> list[RequestRow]:
        """All that match, in order. The limit is the caller's to apply."""
        attribute = _ATTRIBUTES[self.sort_key]
        known: list[RequestRow] = []
        unknown: list[RequestRow] = []
        for row in sorted(filter(self._matches, rows), key=lambda row: row.rid):
            (unknown if getattr(row, attribute) is None else known).append(row)

        def value(row: RequestRow) -> Any:  # noqa: ANN401 - a column's type
            return getattr(row, attribute)

        return sorted(known, key=value, reverse=self.is_descending) + unknown

    def _matches(self, row: RequestRow) -> bool:
        if self.states is not None:
            return row.state in self.states
        return self.is_all or row.state.is_live


def _states(text: str) -> frozenset[RequestState] | None:
    return chosen(text, RequestState, "state of a request", hint="tfctl ps --state running", field="state")


def chosen(text: str, choices: type[Choice], what: str, *, hint: str, field: str) -> frozenset[Choice] | None:
    """The members of an enum in a list with commas; None for an empty one. Raises UsageError."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = {member.value for member in choices}
    for name in names:
        if name not in known:
            raise UsageError(f"{name!r} is no {what}; there are: {', '.join(choices)}", hint=hint, field=field)
    return frozenset(map(choices, names)) or None


def flag(parameters: Mapping[str, str], name: str) -> bool:
    """Raises UsageError."""
    text = parameters.get(name, "").lower()
    if text not in _TRUE + _FALSE:
        raise UsageError(f"{name}: {text!r} is neither 1 nor 0", field=name, hint=f"{name}=1")
    return text in _TRUE


def whole_number(parameters: Mapping[str, str], name: str, default: int | None = None) -> int | None:
    """Raises UsageError."""
    text = parameters.get(name)
    if text is None or text == "":
        return default
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{name}: {text!r} is no whole number", field=name, hint=f"{name}=100")
    return int(text)


def seconds(parameters: Mapping[str, str], name: str, least: float, most: float) -> float | None:
    """None when it is not given. Raises UsageError."""
    text = parameters.get(name)
    if text is None or text == "":
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise UsageError(
            f"{name}: {text!r} is not a number of seconds from {least:g} to {most:g}", field=name, hint=f"{name}=1"
        )
    return value
