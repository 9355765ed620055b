"""The request table's lines, made when they are drawn: a refresh costs the rows on the screen, no others. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from textual.strip import Strip

from tfctl.output import Look, Role
from tfctl.views.cells import Cell, pad
from tfctl.views.requests import COLUMNS, GAP, fit_columns
from tokenflow.wire import RequestRow
from tokenflow_tui.order import Order
from tokenflow_tui.palette import STYLES, Styles
from tokenflow_tui.strips import line_strip

_SHORT_RID_BELOW = 130  # columns
_SHORT_RID_CELLS = 8
_RID = 0
assert COLUMNS[_RID].attribute == "rid"


class TableLines:
    """Columns only ever grow, so that nothing jumps while figures change; `fit` starts anew."""

    def __init__(self, look: Look, styles: Styles = STYLES) -> None:
        self._look = look
        self._styles = styles
        self._rows: Sequence[RequestRow] = ()
        self._order = Order()
        self._widths = self._first_widths()
        self._kept: list[int] = []
        self._strips: dict[int, Strip] = {}
        self.fit(look.width)

    def _first_widths(self) -> list[int]:
        return [
            max(len(column.title) + (index == self._order.column), column.least_width)
            for index, column in enumerate(COLUMNS)
        ]

    def fit(self, width: int | None) -> None:
        """The table has another width, in cells; None: no limit."""
        self._look = replace(self._look, width=width)
        self._widths = self._first_widths()
        self._kept = fit_columns(self._widths, width)
        self._strips.clear()

    def set_styles(self, styles: Styles) -> None:
        self._styles = styles
        self._strips.clear()

    def set_rows(self, rows: Sequence[RequestRow], order: Order) -> None:
        self._rows = rows
        self._strips.clear()
        if order != self._order:
            self._order = order
            self.fit(self._look.width)
        self._widen(rows[:1])

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def width(self) -> int:
        """Cells that a line takes."""
        return sum(self._widths[index] for index in self._kept) + len(GAP) * (len(self._kept) - 1)

    def ready(self, first: int, last: int) -> None:
        """Makes the columns wide enough for these rows, before they are drawn."""
        self._widen(self._rows[max(first, 0) : last])

    def title(self) -> Strip:
        """Column names; the one that is sorted by has an arrow."""
        arrows = ("▼", "▲") if self._look.unicode else ("v", "^")
        cells = []
        for index in self._kept:
            column, title = COLUMNS[index], COLUMNS[index].title
            is_sorted = index == self._order.column
            if is_sorted:
                title += arrows[0 if self._order.is_descending else 1]
            text = pad(title, self._widths[index], is_right=column.is_right)
            cells.append(Cell(text, Role.STRONG if is_sorted else Role.FAINT))
        return line_strip(cells, GAP, self._styles)

    def line(self, index: int) -> Strip:
        """One row, drawn once as long as nothing changes."""
        strip = self._strips.get(index)
        if strip is None:
            cells = self._cells(self._rows[index])
            padded = [
                Cell(pad(cell.text, self._widths[at], is_right=COLUMNS[at].is_right), cell.role)
                for at, cell in zip(self._kept, cells, strict=True)
            ]
            strip = self._strips[index] = line_strip(padded, GAP, self._styles)
        return strip

    def column_at(self, x: int) -> int | None:
        """The column whose title, or the gap behind it, is at cell `x`."""
        end = 0
        for index in self._kept:
            end += self._widths[index] + len(GAP)
            if x < end:
                return index
        return None

    def _cells(self, row: RequestRow) -> list[Cell]:
        return [self._rid(row) if index == _RID else COLUMNS[index].cell(row, self._look) for index in self._kept]

    def _rid(self, row: RequestRow) -> Cell:
        """The end of the id where room is short: it tells requests apart, `y` copies the whole."""
        width = self._look.width
        if width is None or width >= _SHORT_RID_BELOW or len(row.rid) <= _SHORT_RID_CELLS + 2:
            return Cell(row.rid, Role.STRONG)
        return Cell(("…" if self._look.unicode else "~") + row.rid[-_SHORT_RID_CELLS:], Role.STRONG)

    def _widen(self, rows: Sequence[RequestRow]) -> None:
        grown = False
        for row in rows:
            for at, cell in zip(self._kept, self._cells(row), strict=True):
                if len(cell.text) > self._widths[at]:
                    self._widths[at], grown = len(cell.text), True
        if grown:
            self._kept = fit_columns(self._widths, self._look.width)
            self._strips.clear()
