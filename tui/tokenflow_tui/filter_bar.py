"""Where the filter is typed. It takes every letter, also those that are keys elsewhere."""

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widgets import Input


class FilterBar(Input):
    """Shown while it has the focus. Enter keeps the filter, Escape drops it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "drop", "no filter", show=False)]
    DEFAULT_CSS = """
    FilterBar { display: none; height: 1; border: none; padding: 0 1; background: $surface; }
    FilterBar:focus { border: none; }
    FilterBar.open { display: block; }
    """

    def __init__(self, on_close: Callable[[], object]) -> None:
        super().__init__(
            placeholder="part of an id, state, class or reason; !word: without it", id="filter", compact=True
        )
        self._on_close = on_close

    def open(self) -> None:
        self.add_class("open")
        self.focus()

    def close(self) -> None:
        """At once and by no message: the next key is meant for what has the focus then."""
        self.remove_class("open")
        self._on_close()

    def action_drop(self) -> None:
        self.value = ""
        self.close()

    async def action_submit(self) -> None:
        self.close()
