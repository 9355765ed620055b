"""The request table. Drawn line by line: a refresh costs a few milliseconds whatever the number of rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tfctl.output import Look
from tokenflow.wire import RequestRow
from tokenflow_tui.strips import TableStrips, build_strips, with_cursor


class RequestTable(ScrollView, can_focus=True):
    """Holds the rows and a cursor that stays on its request, wherever that moves to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "previous request", show=False),
        Binding("down,j", "move(1)", "next request", show=False),
        Binding("pageup", "move(-10)", "ten up", show=False),
        Binding("pagedown", "move(10)", "ten down", show=False),
        Binding("home,g", "move(-1000000)", "first request", show=False),
        Binding("end,G", "move(1000000)", "last request", show=False),
    ]

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look
        self._rows: Sequence[RequestRow] = ()
        self._strips: TableStrips = build_strips((), look)
        self.cursor_rid: str | None = None

    @property
    def cursor_index(self) -> int | None:
        """Where the cursor's request stands now; None if there are no rows."""
        return next((index for index, row in enumerate(self._rows) if row.rid == self.cursor_rid), None)

    def set_rows(self, rows: Sequence[RequestRow]) -> None:
        """Takes new rows. If the cursor's request has gone, the one in its place gets the cursor."""
        index = self.cursor_index or 0
        self._rows = rows
        if self.cursor_index is None:
            self.cursor_rid = rows[min(index, len(rows) - 1)].rid if rows else None
        self._rebuild()

    def action_move(self, by: int) -> None:
        index = self.cursor_index
        if index is None:
            return
        index = min(max(index + by, 0), len(self._rows) - 1)
        self.cursor_rid = self._rows[index].rid
        # Two lines high: the title covers the topmost line of what is scrolled.
        self.scroll_to_region(Region(0, index, 1, 2), animate=False)
        self.refresh()

    def on_resize(self) -> None:
        self._rebuild()

    def _rebuild(self) -> None:
        width = self.size.width
        self._strips = build_strips(self._rows, replace(self._look, width=width - 1 if width > 1 else None))
        self.virtual_size = Size(self._strips.width, len(self._rows) + 1)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Line 0 is the title and stays; below it the rows scroll."""
        width = self.size.width
        left, top = self.scroll_offset
        style = self.rich_style
        if y == 0:
            return self._strips.title.crop_extend(left, left + width, style).apply_style(style)
        index = y - 1 + top
        if index >= len(self._rows):
            return Strip.blank(width, style)
        strip = self._strips.rows[index]
        if self._rows[index].rid == self.cursor_rid:
            strip = with_cursor(strip, max(width, self._strips.width))
        return strip.crop_extend(left, left + width, style).apply_style(style)
