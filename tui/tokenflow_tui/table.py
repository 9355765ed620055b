"""The request table. Drawn line by line: a refresh costs a few milliseconds whatever the number of rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tfctl.output import Look, Role
from tfctl.views.cells import Cell
from tokenflow.wire import RequestRow
from tokenflow_tui.order import Order, arranged
from tokenflow_tui.palette import STYLES, Styles, upon
from tokenflow_tui.strips import REVERSED, line_strip
from tokenflow_tui.table_lines import TableLines

_FAR = 1_000_000


class RequestTable(ScrollView, can_focus=True):
    """Holds the rows, their order and filter, and a cursor that stays on its request, wherever that moves to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "previous request", show=False),
        Binding("down,j", "move(1)", "next request", show=False),
        Binding("pageup", "page(-1)", "a page up", show=False),
        Binding("pagedown", "page(1)", "a page down", show=False),
        Binding("home,g", f"move({-_FAR})", "first request", show=False),
        Binding("end,G", f"move({_FAR})", "last request", show=False),
        Binding("left,less_than_sign", "sort_by(-1)", "sort by the column to the left", show=False),
        Binding("right,greater_than_sign", "sort_by(1)", "sort by the column to the right", show=False),
        Binding("r", "reverse", "reverse the order", show=False),
    ]

    class CursorMoved(Message):
        """The cursor is on another request."""

    class Opened(Message):
        """The request under the cursor was clicked twice."""

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._all: Sequence[RequestRow] | None = None  # None: nothing was read yet
        self._rows: Sequence[RequestRow] = ()
        self._index_of: dict[str, int] = {}
        self.lines = TableLines(replace(look, width=None))
        self.order = Order()
        self.wanted = ""
        self.cursor_rid: str | None = None
        self._role_styles: Styles = STYLES
        self._cursor_style = REVERSED
        self._base: Style | None = None

    @property
    def shown_count(self) -> int:
        return len(self._rows)

    @property
    def row_count(self) -> int:
        """Before the filter."""
        return len(self._all or ())

    @property
    def cursor_index(self) -> int | None:
        """Where the cursor's request stands now; None if it is not shown."""
        return None if self.cursor_rid is None else self._index_of.get(self.cursor_rid)

    @property
    def cursor_row(self) -> RequestRow | None:
        index = self.cursor_index
        return None if index is None else self._rows[index]

    def set_rows(self, rows: Sequence[RequestRow]) -> None:
        """Takes new rows. If the cursor's request has gone, the one in its place gets the cursor."""
        self._all = rows
        self._arrange()

    def set_order(self, order: Order) -> None:
        self.order = order
        self._arrange()

    def set_filter(self, wanted: str) -> None:
        """See `tokenflow_tui.order.matches`."""
        self.wanted = wanted.strip()
        self._arrange()

    def restyle(self, styles: Styles, cursor_style: Style) -> None:
        """The theme's styles, and what the row under the cursor gets on top."""
        self._role_styles, self._cursor_style = styles, cursor_style
        self._base = None
        self._redraw()

    def _arrange(self) -> None:
        index = self.cursor_index or 0
        self._rows = arranged(self._all or (), self.order, self.wanted)
        self._index_of = {row.rid: at for at, row in enumerate(self._rows)}
        before = self.cursor_rid
        if self.cursor_index is None:
            self.cursor_rid = self._rows[min(index, len(self._rows) - 1)].rid if self._rows else None
        self.lines.set_rows(self._rows, self.order)
        self._redraw()
        if self.cursor_rid != before:
            self.post_message(self.CursorMoved())

    def action_move(self, by: int) -> None:
        index = self.cursor_index
        if index is not None:
            self._put_cursor(min(max(index + by, 0), len(self._rows) - 1))

    def action_page(self, by: int) -> None:
        self.action_move(by * max(self.size.height - 2, 1))

    def action_sort_by(self, by: int) -> None:
        self.set_order(self.order.moved(by))

    def action_reverse(self) -> None:
        self.set_order(self.order.reversed())

    def _put_cursor(self, index: int) -> None:
        self.cursor_rid = self._rows[index].rid
        self._scroll_to_cursor()
        self.call_after_refresh(self._scroll_to_cursor)  # rows that have just come are not laid out yet
        self.refresh()
        self.post_message(self.CursorMoved())

    def _scroll_to_cursor(self) -> None:
        index = self.cursor_index
        if index is not None:
            # Two lines high: the title covers the topmost line of what is scrolled.
            self.scroll_to_region(Region(0, index, 1, 2), animate=False)

    def on_click(self, event: Click) -> None:
        """On a title: sort by it. On a row: the cursor; twice: its detail."""
        if event.y == 0:
            column = self.lines.column_at(event.x + self.scroll_offset.x)
            if column is not None:
                self.set_order(self.order.by(column))
            return
        index = event.y - 1 + self.scroll_offset.y
        if index < len(self._rows):
            self._put_cursor(index)
            if event.chain == 2:
                self.post_message(self.Opened())

    def on_resize(self) -> None:
        width = self.size.width - (0 if self.show_vertical_scrollbar else 1)
        self.lines.fit(width if width > 0 else None)
        self._redraw()

    def _redraw(self) -> None:
        base = self.rich_style
        if base != self._base:
            self._base = base
            self.lines.set_styles(upon(self._role_styles, base), self._cursor_style)
        top = self.scroll_offset.y
        self.lines.ready(top, top + self.size.height)
        self.virtual_size = Size(self.lines.width, len(self._rows) + 1)
        self.refresh()

    def _nothing(self, width: int) -> Strip:
        """Why the table is empty; blank while nothing was read yet."""
        text = "" if self._all is None else "no request matches" if self._all else "no requests"
        styles = upon(self._role_styles, self._base or self.rich_style)
        return line_strip([Cell(text, Role.FAINT)], "", styles, width)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        top = int(new_value)
        self.lines.ready(top, top + self.size.height)

    def render_line(self, y: int) -> Strip:
        """Line 0 is the title and stays; below it the rows scroll."""
        width = self.size.width
        if y == 0:
            return self.lines.title(width)
        index = y - 1 + self.scroll_offset.y
        if index >= len(self._rows):
            return self._nothing(width) if y == 1 and not self._rows else Strip.blank(width, self._base)
        return self.lines.line(index, width, is_cursor=self._rows[index].rid == self.cursor_rid)
