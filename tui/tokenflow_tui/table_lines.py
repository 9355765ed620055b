"""The request table's lines, made when they are drawn: a refresh costs the rows on the screen, no others. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from rich.style import Style
from textual.strip import Strip

from tfctl.output import Look, Role
from tfctl.views.cells import Cell, pad
from tfctl.views.requests import COLUMNS, GAP, fit_columns
from tokenflow.wire import RequestRow
from tokenflow_tui.order import Order
from tokenflow_tui.palette import STYLES, Styles
from tokenflow_tui.strips import REVERSED, line_strip

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
        self._strips: dict[tuple[int, bool], Strip] = {}
        self._cells_by_row: dict[int, list[Cell]] = {}
        self._cursor_style = REVERSED
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
        self._forget()

    def _forget(self) -> None:
        self._strips.clear()
        self._cells_by_row.clear()

    def set_styles(self, styles: Styles, cursor_style: Style) -> None:
        """Styles with the table's own colours in them, and what the row under the cursor gets on top."""
        self._styles, self._cursor_style = styles, cursor_style
        self._strips.clear()

    def set_rows(self, rows: Sequence[RequestRow], order: Order) -> None:
        self._rows = rows
        self._forget()
        if order != self._order:
            self._order = order
            self.fit(self._look.width)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def width(self) -> int:
        """Cells that a line takes."""
        return sum(self._widths[index] for index in self._kept) + len(GAP) * (len(self._kept) - 1)

    def ready(self, first: int, last: int) -> None:
        """Makes the columns wide enough for these rows, before they are drawn."""
        grown = False
        for index in range(max(first, 0), min(last, len(self._rows))):
            for at, cell in zip(self._kept, self._cells(index), strict=True):
                if len(cell.text) > self._widths[at]:
                    self._widths[at], grown = len(cell.text), True
        if grown:
            self._kept = fit_columns(self._widths, self._look.width)
            self._forget()

    def title(self, width: int | None = None) -> Strip:
        """Column names; the one that is sorted by has an arrow. `width`: of the whole line."""
        arrows = ("▼", "▲") if self._look.unicode else ("v", "^")
        cells = []
        for index in self._kept:
            column, title = COLUMNS[index], COLUMNS[index].title
            is_sorted = index == self._order.column
            if is_sorted:
                title += arrows[0 if self._order.is_descending else 1]
            text = pad(title, self._widths[index], is_right=column.is_right)
            cells.append(Cell(text, Role.STRONG if is_sorted else Role.FAINT))
        return line_strip(cells, GAP, self._styles, width)

    def line(self, index: int, width: int | None = None, *, is_cursor: bool = False) -> Strip:
        """One row, drawn once as long as nothing changes."""
        strip = self._strips.get((index, is_cursor))
        if strip is None or (width is not None and strip.cell_length != width):
            padded = [
                Cell(pad(cell.text, self._widths[at], is_right=COLUMNS[at].is_right), cell.role)
                for at, cell in zip(self._kept, self._cells(index), strict=True)
            ]
            extra = self._cursor_style if is_cursor else None
            strip = self._strips[index, is_cursor] = line_strip(padded, GAP, self._styles, width, extra)
        return strip

    def column_at(self, x: int) -> int | None:
        """The column whose title, or the gap behind it, is at cell `x`."""
        end = 0
        for index in self._kept:
            end += self._widths[index] + len(GAP)
            if x < end:
                return index
        return None

    def _cells(self, index: int) -> list[Cell]:
        cells = self._cells_by_row.get(index)
        if cells is None:
            row = self._rows[index]
            cells = self._cells_by_row[index] = [
                self._rid(row) if at == _RID else COLUMNS[at].cell(row, self._look) for at in self._kept
            ]
        return cells

    def _rid(self, row: RequestRow) -> Cell:
        """The end of the id where room is short: it tells requests apart, `y` copies the whole."""
        width = self._look.width
        if width is None or width >= _SHORT_RID_BELOW or len(row.rid) <= _SHORT_RID_CELLS + 2:
            return Cell(row.rid, Role.STRONG)
        return Cell(("…" if self._look.unicode else "~") + row.rid[-_SHORT_RID_CELLS:], Role.STRONG)
