"""Where the filter is typed. It takes every letter, also those that are keys elsewhere."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input


class FilterBar(Input):
    """Shown while it has the focus. Enter keeps the filter, Escape drops it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "drop", "no filter", show=False)]
    DEFAULT_CSS = """
    FilterBar { display: none; height: 1; border: none; padding: 0 1; background: $surface; }
    FilterBar:focus { border: none; }
    FilterBar.open { display: block; }
    """

    class Closed(Message):
        """The focus goes back to the table."""

    def __init__(self) -> None:
        super().__init__(
            placeholder="part of an id, state, class or reason; !word: without it", id="filter", compact=True
        )

    def open(self) -> None:
        self.add_class("open")
        self.focus()

    def close(self) -> None:
        self.remove_class("open")
        self.post_message(self.Closed())

    def action_drop(self) -> None:
        self.value = ""
        self.close()

    def on_input_submitted(self) -> None:
        self.close()
