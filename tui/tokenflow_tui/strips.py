"""Rows → strips: the table's lines as Textual draws them. Pure, so that it is tested without an app."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from tfctl.output import Look, Role
from tfctl.views.cells import Cell
from tfctl.views.requests import GAP, request_lines
from tokenflow.wire import RequestRow

STYLES = {
    Role.PLAIN: Style(),
    Role.STRONG: Style(bold=True),
    Role.FAINT: Style(dim=True),
    Role.GOOD: Style(color="green"),
    Role.WARN: Style(color="yellow"),
    Role.BAD: Style(color="red", bold=True),
}
_CURSOR = Style(reverse=True)


@dataclass(frozen=True, slots=True)
class TableStrips:
    """The title line, and one strip a row in the order of the rows."""

    title: Strip
    rows: list[Strip]
    width: int


def build_strips(rows: Sequence[RequestRow], look: Look) -> TableStrips:
    """All strips, `look.width` cells wide at most where the columns can be fitted."""
    titles, lines = request_lines(rows, look)
    title = _strip(titles)
    return TableStrips(title, [_strip(line) for line in lines], title.cell_length)


def with_cursor(strip: Strip, width: int) -> Strip:
    """The strip as the row under the cursor: reversed over the whole width."""
    return strip.adjust_cell_length(width).apply_style(_CURSOR)


def line_text(cells: Sequence[Cell]) -> Text:
    """A header line as Rich text."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for index, cell in enumerate(cells):
        text.append("  " if index else "")
        text.append(cell.text, STYLES[cell.role])
    return text


def _strip(cells: Sequence[Cell]) -> Strip:
    segments: list[Segment] = []
    for index, cell in enumerate(cells):
        if index:
            segments.append(Segment(GAP))
        segments.append(Segment(cell.text, STYLES[cell.role]))
    return Strip(segments)
