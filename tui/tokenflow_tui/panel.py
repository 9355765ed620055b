"""A part of the screen that shows lines of cells, drawn line by line."""

from collections.abc import Callable, Sequence

from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from tfctl.views.cells import Cell
from tokenflow_tui.palette import STYLES, Styles, upon
from tokenflow_tui.strips import line_strip

Lines = Sequence[Sequence[Cell]]


class Panel(Widget):
    """`draw` is asked for lines whenever there is something new or the size has changed."""

    DEFAULT_CSS = "Panel { height: auto; }"

    def __init__(self, name: str, draw: Callable[[int, int], Lines]) -> None:
        super().__init__(id=name)
        self._draw = draw
        self._strips: list[Strip] = []
        self._drawn: object = None
        self.styles_in_use: Styles = STYLES

    def renew(self) -> None:
        """Draws what there is now."""
        width = self.size.width or self.app.size.width
        lines, base = [list(line) for line in self._draw(width, self.size.height)], self.rich_style
        drawn = (lines, width, base, self.styles_in_use)
        if drawn == self._drawn:
            return  # nothing new: what stands there costs nothing
        self._drawn = drawn
        styles = upon(self.styles_in_use, base)
        was = len(self._strips)
        self._strips = [line_strip(line, "  ", styles, width) for line in lines]
        if len(self._strips) != was and self.styles.height is not None and self.styles.height.is_auto:
            self.refresh(layout=True)
        else:
            self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._strips)

    def on_resize(self) -> None:
        self.renew()

    def render_line(self, y: int) -> Strip:
        if y < len(self._strips) and self._strips[y].cell_length == self.size.width:
            return self._strips[y]
        style, width = self.rich_style, self.size.width
        return self._strips[y].crop_extend(0, width, style) if y < len(self._strips) else Strip.blank(width, style)

    @property
    def text(self) -> str:
        """What stands there, without colour."""
        return "\n".join(strip.text.rstrip() for strip in self._strips)
