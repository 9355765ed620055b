"""Which rows are shown, and in what order. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfctl.views.requests import COLUMNS
from tokenflow.wire import RequestRow

_BY_RUNWAY = next(index for index, column in enumerate(COLUMNS) if column.attribute == "runway_s")


@dataclass(frozen=True, slots=True)
class Order:
    """A column of the table, by index, and which way round."""

    column: int = _BY_RUNWAY
    is_descending: bool = False

    def reversed(self) -> "Order":
        return replace(self, is_descending=not self.is_descending)

    def moved(self, by: int) -> "Order":
        return Order((self.column + by) % len(COLUMNS), self.is_descending)

    def by(self, column: int) -> "Order":
        """Asked for a second time, the order is turned round."""
        return self.reversed() if column == self.column else Order(column, self.is_descending)


def arranged(rows: Sequence[RequestRow], order: Order, wanted: str) -> list[RequestRow]:
    """The rows that match `wanted`, sorted; nulls last in both directions, equals by rid."""
    words = wanted.lower().split()
    kept = [row for row in rows if matches(row, words)] if words else list(rows)
    attribute = COLUMNS[order.column].attribute
    kept.sort(key=lambda row: row.rid)

    def value(row: RequestRow) -> Any:  # noqa: ANN401 - a column's type
        return getattr(row, attribute)

    known = [row for row in kept if value(row) is not None]
    known.sort(key=value, reverse=order.is_descending)
    return known + [row for row in kept if value(row) is None]


def matches(row: RequestRow, words: Sequence[str]) -> bool:
    """Every word is part of the id, state, class or reason; `!word` is part of none."""
    text = f"{row.rid} {row.state} {row.class_} {row.reason or ''} {row.parent_rid or ''}".lower()
    return all((word[1:] not in text) if word.startswith("!") and word != "!" else (word in text) for word in words)
