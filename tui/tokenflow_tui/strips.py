"""Cells → strips: lines as Textual draws them. Pure, so that it is tested without an app."""

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tfctl.output import Role
from tfctl.views.cells import Cell
from tokenflow_tui.palette import STYLES, Styles

REVERSED = Style(reverse=True)


def line_strip(
    cells: Sequence[Cell],
    gap: str = "  ",
    styles: Styles = STYLES,
    width: int | None = None,
    extra: Style | None = None,
) -> Strip:
    """One line. Cells are told apart by `gap`; `width` cuts or fills it; `extra` comes on top of every style.

    The strip is made once and in its final length: Textual pays for every further operation on it.
    """
    plain = styles[Role.PLAIN] if extra is None else styles[Role.PLAIN] + extra
    segments: list[Segment] = []
    length = 0
    for index, cell in enumerate(cells):
        if index and not cell.is_joined:
            segments.append(Segment(gap, plain))
            length += len(gap)
        style = styles[cell.role]
        segments.append(Segment(cell.text, style if extra is None else style + extra))
        length += segments[-1].cell_length
    if width is None or length == width:
        return Strip(segments, length)
    if length < width:
        segments.append(Segment(" " * (width - length), plain))
        return Strip(segments, width)
    return Strip(segments, length).crop(0, width)
