"""The help screen, made from the bindings themselves."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from tfctl import formats
from tfctl.output import Look
from tokenflow.policy.states import RequestState

_NAMES = {
    "question_mark": "?",
    "slash": "/",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "shift+up": "Shift-Up",
    "shift+down": "Shift-Down",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
    "enter": "Enter",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
}


class HelpScreen(ModalScreen[None]):
    """Closes with the keys that opened it, or Escape."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q", "dismiss", "close")]
    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll { width: auto; max-width: 100%; height: auto; max-height: 100%;
                                  padding: 0 3; border: round $primary; background: $surface; }
    HelpScreen Static { width: auto; }
    HelpScreen.ascii > VerticalScroll { border: ascii $primary; }
    """

    def __init__(self, bindings: Iterable[Binding], look: Look) -> None:
        super().__init__(classes="" if look.unicode else "ascii")
        glyphs = [f"{formats.request_glyph(state, unicode=look.unicode)} {state}" for state in RequestState]
        self._text = help_text(bindings) + "\n\n" + "\n".join(glyphs)

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._text, markup=False)


def help_text(bindings: Iterable[Binding]) -> str:
    """One line a binding: keys, then what they do."""
    return "\n".join(f"{key_text(binding.key):<12} {binding.tooltip or binding.description}" for binding in bindings)


def key_text(keys: str) -> str:
    """`up,k` → `up k`; punctuation by its sign."""
    return " ".join(_NAMES.get(key, key.capitalize() if len(key) > 1 else key) for key in keys.split(","))
