"""Asks before something is done that cannot be undone."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static


class AskScreen(ModalScreen[bool]):
    """True only for `y`."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q,enter", "answer(False)", "no"),
    ]
    DEFAULT_CSS = """
    AskScreen { align: center middle; }
    AskScreen > Static { width: auto; max-width: 90%; height: auto; padding: 1 3;
                         border: round $warning; background: $surface; }
    AskScreen.ascii > Static { border: ascii $warning; }
    """

    def __init__(self, question: str, *, is_ascii: bool) -> None:
        super().__init__(classes="ascii" if is_ascii else "")
        self._question = question

    def compose(self) -> ComposeResult:
        yield Static(f"{self._question}\n\ny: yes   n: no", markup=False)

    def action_answer(self, is_yes: bool) -> None:
        self.dismiss(is_yes)
