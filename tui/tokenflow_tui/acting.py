"""What the view does to a request: asks where that is due, acts in a thread, and tells what became of it."""

from collections.abc import Callable

from textual.app import App

from tokenflow.wire import RequestRow
from tokenflow_tui.ask import AskScreen
from tokenflow_tui.hand import OperatorHand, Outcome


class Acting:
    """Used on the app's own thread."""

    def __init__(self, app: App[None], hand: OperatorHand, *, is_ascii: bool) -> None:
        self._app = app
        self._hand = hand
        self._is_ascii = is_ascii

    def hold(self, row: RequestRow) -> None:
        """Pauses a request, or lets go of one that is held."""
        self.carry_out(lambda: self._hand.hold_or_let_go(row))

    def abort(self, row: RequestRow) -> None:
        """Ends a request, if the user means it."""

        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self.carry_out(lambda: self._hand.abort(row))

        question = f"End {row.rid} ({row.state}, {row.generated_tokens} tokens made)?\nIts client gets what was made."
        self._app.push_screen(AskScreen(question, is_ascii=self._is_ascii), answered)

    def carry_out(self, act: Callable[[], Outcome]) -> None:
        """`act` blocks."""
        self._app.run_worker(lambda: self._app.call_from_thread(self._tell, act()), thread=True)

    def _tell(self, outcome: Outcome) -> None:
        text = outcome.text + (f"\n{outcome.hint}" if outcome.hint else "")
        self._app.notify(text, severity="information" if outcome.is_done else "error", timeout=6, markup=False)
