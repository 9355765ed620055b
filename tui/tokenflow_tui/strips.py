"""Cells → strips: lines as Textual draws them. Pure, so that it is tested without an app."""

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tfctl.views.cells import Cell
from tokenflow_tui.palette import STYLES, Styles

_CURSOR = Style(reverse=True)


def line_strip(cells: Sequence[Cell], gap: str = "  ", styles: Styles = STYLES) -> Strip:
    """One line. Cells are told apart by `gap`."""
    segments: list[Segment] = []
    for index, cell in enumerate(cells):
        if index and not cell.is_joined:
            segments.append(Segment(gap))
        segments.append(Segment(cell.text, styles[cell.role]))
    return Strip(segments)


def with_cursor(strip: Strip, width: int) -> Strip:
    """The strip as the row under the cursor: reversed over the whole width."""
    return strip.adjust_cell_length(width).apply_style(_CURSOR)
