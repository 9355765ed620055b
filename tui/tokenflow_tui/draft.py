"""Tunables as they are, and as the user would have them: what the tuning panel works on. Pure."""

import math
from collections.abc import Sequence
from typing import Any

from tfctl.output import Look, Role
from tfctl.views.cells import Cell
from tfctl.views.comparison import value_text
from tokenflow.tuning import TunableRow

_KEY_CELLS, _VALUE_CELLS, _RANGE_CELLS = 22, 10, 28
_WIDE_RATIO = 50.0  # from here on a slider goes by orders of magnitude


class Draft:
    """`changes` are not in force yet."""

    def __init__(self, rows: Sequence[TunableRow], key: str = "safety_factor") -> None:
        self.rows = list(rows)
        self.changes: dict[str, Any] = {}
        self.cursor = next((index for index, row in enumerate(self.rows) if row.key == key), 0)

    @property
    def row(self) -> TunableRow:
        return self.rows[self.cursor]

    def value(self, row: TunableRow) -> Any:  # noqa: ANN401 - whatever type the tunable has
        """As the user would have it."""
        return self.changes.get(row.key, row.value if row.value is not None else row.default)

    def move(self, by: int) -> None:
        self.cursor = min(max(self.cursor + by, 0), len(self.rows) - 1)

    def nudge(self, by: int) -> None:
        """A step up or down, or the next choice. Back at the value in force there is no change."""
        row = self.row
        value = self.value(row)
        if row.choices:
            words = [value_text(value)]
            at = row.choices.index(words[0]) if words[0] in row.choices else 0
            word = row.choices[(at + by) % len(row.choices)]
            new: Any = word == "true" if isinstance(row.default, bool) else word
        else:
            assert row.minimum is not None
            assert row.maximum is not None
            step = _step(float(value), is_whole=isinstance(row.default, int))
            new = round(min(max(float(value) + by * step, row.minimum), row.maximum), 6)
            new = int(new) if isinstance(row.default, int) else new
        if new == row.value:
            self.changes.pop(row.key, None)
        else:
            self.changes[row.key] = new

    def drop(self) -> None:
        """No change of the row under the cursor."""
        self.changes.pop(self.row.key, None)

    def lines(self, width: int, height: int, look: Look) -> list[list[Cell]]:
        """A title and the rows around the cursor."""
        room = max(height - 1, 1)
        first = min(max(self.cursor - room // 2, 0), max(len(self.rows) - room, 0))
        shown = range(first, min(first + room, len(self.rows)))
        key = "KEY" if len(shown) == len(self.rows) else f"KEY {first + 1} to {shown.stop} of {len(self.rows)}"
        title = key.ljust(_KEY_CELLS) + "VALUE".rjust(_VALUE_CELLS) + "  " + "RANGE".ljust(_RANGE_CELLS) + "ORIGIN"
        lines = [[Cell(title, Role.FAINT)]]
        return lines + [self._line(self.rows[at], is_cursor=at == self.cursor, look=look) for at in shown]

    def _line(self, row: TunableRow, *, is_cursor: bool, look: Look) -> list[Cell]:
        mark = ("▶ " if look.unicode else "> ") if is_cursor else "  "
        value = value_text(row.value) if row.value is not None else "-"
        limits = " ".join(row.choices) if row.choices else f"{value_text(row.minimum)} to {value_text(row.maximum)}"
        cells = [
            Cell((mark + row.key).ljust(_KEY_CELLS), Role.STRONG if is_cursor else Role.PLAIN),
            Cell(value.rjust(_VALUE_CELLS), is_joined=True),
            Cell(limits.ljust(_RANGE_CELLS)[:_RANGE_CELLS], Role.FAINT),
            Cell(row.origin or "-", Role.FAINT, is_joined=True),
        ]
        if row.key in self.changes:
            arrow = "→" if look.unicode else "->"
            cells.append(Cell(f"{arrow} {value_text(self.changes[row.key])}", Role.WARN))
        return cells

    def slider(self, width: int, look: Look) -> list[list[Cell]]:
        """What the tunable means, and where its value lies between its ends."""
        row = self.row
        lines = [[Cell(row.key, Role.STRONG), Cell(row.text, Role.FAINT)]]
        if row.minimum is None or row.maximum is None:
            return [*lines, [Cell("  ".join(row.choices))]]
        left, right = value_text(row.minimum), value_text(row.maximum)
        value = float(self.value(row))
        cells = max(width - len(left) - len(right) - 16, 10)
        at = round(_place(value, row.minimum, row.maximum) * (cells - 1))
        line, knob = ("─", "●") if look.unicode else ("-", "O")
        bar = line * at + knob + line * (cells - 1 - at)
        role = Role.WARN if row.key in self.changes else Role.PLAIN
        return [
            *lines,
            [Cell(left, Role.FAINT), Cell(bar, role), Cell(right, Role.FAINT), Cell(value_text(value), role)],
        ]


def _step(value: float, *, is_whole: bool) -> float:
    """A tenth of the value's order of magnitude: fine enough to aim, coarse enough to arrive."""
    if is_whole:
        return max(1.0, 10.0 ** math.floor(math.log10(max(abs(value), 1.0))) / 10.0)
    return 0.05 if abs(value) < 1.0 else 10.0 ** math.floor(math.log10(abs(value)) + 1e-9) / 10.0


def _place(value: float, minimum: float, maximum: float) -> float:
    """0 to 1, by orders of magnitude where the range spans several."""
    value = min(max(value, minimum), maximum)
    if minimum > 0 and maximum / minimum > _WIDE_RATIO:
        return math.log(value / minimum) / math.log(maximum / minimum)
    return (value - minimum) / (maximum - minimum) if maximum > minimum else 0.0
