"""The help screen, made from the bindings themselves."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static


class HelpScreen(ModalScreen[None]):
    """Closes with the keys that opened it, or Escape."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q", "dismiss", "close")]
    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > Static { width: auto; height: auto; padding: 1 3; border: round $primary; background: $surface; }
    """

    def __init__(self, bindings: Iterable[Binding]) -> None:
        super().__init__()
        self._bindings_shown = list(bindings)

    def compose(self) -> ComposeResult:
        yield Static(help_text(self._bindings_shown), markup=False)


def help_text(bindings: Iterable[Binding]) -> str:
    """One line a binding: keys, then what they do."""
    names = {"question_mark": "?", "pageup": "PgUp", "pagedown": "PgDn"}
    lines = []
    for binding in bindings:
        keys = " ".join(names.get(key, key) for key in binding.key.split(","))
        lines.append(f"{keys:<10} {binding.description}")
    return "\n".join(lines)
