"""The parts of the view's one screen: found, drawn anew, dressed for a theme, fitted to a size."""

from textual.app import App
from textual.geometry import Size
from textual.screen import Screen

from tokenflow_tui.layout import BESIDE_CELLS, LOW_LINES, TALL_LINES, WIDE_CELLS
from tokenflow_tui.palette import cursor_of, styles_of
from tokenflow_tui.panel import Panel
from tokenflow_tui.table import RequestTable

PANELS = ("header", "trends", "transfers", "gpus", "detail", "bar")


class Parts:
    """Of the lowest screen, whatever lies on top of it."""

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._hidden: set[str] = set()

    @property
    def screen(self) -> Screen[object]:
        return self._app.screen_stack[0]

    @property
    def table(self) -> RequestTable:
        return self.screen.query_one(RequestTable)

    @property
    def are_whole(self) -> bool:
        """Not before all of them are there, and not while they are taken down one by one."""
        if not self._app.screen_stack:
            return False
        present = {widget.id for widget in self.screen.walk_children(with_self=False)}
        return present >= {*PANELS, "panels", "body"} and bool(self.screen.query(RequestTable))

    def renew(self, *names: str) -> None:
        """Draws what these panels have to say now; all of them where none is named."""
        for name in names or PANELS:
            panel = self.screen.query_one(f"#{name}", Panel)
            if all(isinstance(part, Screen) or part.display for part in panel.ancestors_with_self):
                panel.renew()  # what is hidden would be laid out all the same

    def show_or_hide(self, name: str) -> None:
        panel = self.screen.query_one(f"#{name}")
        panel.display = not panel.display
        self._hidden ^= {name}

    def show_gpus(self, has_gpus: bool) -> None:
        """Where there are any, unless the user has hidden them."""
        self.screen.query_one("#panels").set_class(has_gpus and "gpus" not in self._hidden, "gpus")

    def restyle(self) -> None:
        """Takes over the theme."""
        variables = self._app.theme_variables
        styles = styles_of(variables)
        for panel in self.screen.query(Panel):
            panel.styles_in_use = styles
            panel.renew()
        self.table.restyle(styles, cursor_of(variables))

    def fit(self, size: Size) -> None:
        """See `tokenflow_tui.layout`."""
        self.screen.set_class(size.width >= WIDE_CELLS, "wide")
        self.screen.set_class(size.height >= TALL_LINES, "tall")
        self.screen.set_class(size.height < LOW_LINES, "low")
        self.screen.set_class(size.width >= BESIDE_CELLS, "beside")
