"""The tuning panel: tunables, a slider, and what another value would have done over the last minutes."""

from collections.abc import Sequence
from typing import ClassVar, Protocol

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer

from tfctl.compare import base_of
from tfctl.documents import Effect
from tfctl.output import Look, Role, with_socket
from tfctl.views.cells import Cell
from tfctl.views.comparison import effect_lines, value_text
from tfctl.whatif import LookAt, WhatIf
from tokenflow.errors import TokenFlowError
from tokenflow.policy.tunables import Tunables, check
from tokenflow.tuning import TunablesDocument, TuneRequest
from tokenflow_tui.draft import Draft
from tokenflow_tui.moment import Packed, UnreadableError
from tokenflow_tui.palette import Styles
from tokenflow_tui.panel import Panel
from tokenflow_tui.way_back import way_back

_LOOKS = 120  # so many moments are replayed, evenly taken from the last minutes


class Tuner(Protocol):
    """Changes tunables; blocking. Raises TokenFlowError."""

    def tune(self, wish: TuneRequest) -> TunablesDocument: ...


class TuningScreen(ModalScreen[None]):
    """`tuner` None: nothing can be changed here (a replay, or read-only), the comparison works all the same."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("left,h", "nudge(-1)", "less", key_display="left"),
        Binding("right,l", "nudge(1)", "more", key_display="right"),
        Binding("shift+left,H", "nudge(-10)", "much less", show=False),
        Binding("shift+right,L", "nudge(10)", "much more", show=False),
        Binding("enter", "apply(False)", "apply", key_display="Enter"),
        Binding("w", "apply(True)", "apply and persist"),
        Binding("u", "undo", "undo"),
        Binding("R", "reset", "reset"),
        Binding("d", "drop", "drop", show=False),
        Binding("escape,q,t", "dismiss", "close", key_display="Esc"),
    ]
    DEFAULT_CSS = """
    TuningScreen { align: center middle; }
    TuningScreen > Vertical { width: 92; max-width: 100%; height: 100%; max-height: 36; padding: 0 2;
                              border: round $primary; background: $surface; }
    TuningScreen.ascii > Vertical { border: ascii $primary; }
    TuningScreen #tunables { height: 1fr; }
    TuningScreen #slider { height: 2; margin: 1 0; }
    TuningScreen #effect { height: 9; }
    TuningScreen Footer { dock: none; }
    """

    def __init__(
        self,
        document: TunablesDocument,
        moments: Sequence[Packed],
        tuner: Tuner | None,
        look: Look,
        styles: Styles,
    ) -> None:
        super().__init__(classes="" if look.unicode else "ascii")
        self._document = document
        self._draft = Draft(document.tunables)
        self._moments = list(moments)
        self._tuner = tuner
        self._look = look
        self._styles_of_roles = styles
        self._whatif: WhatIf | None = None
        self._effects: tuple[Effect, Effect] | None = None
        self._undo: list[list[TuneRequest]] = []

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Panel("tunables", lambda width, height: self._draft.lines(width, height, self._look))
            yield Panel("slider", lambda width, height: self._draft.slider(width, self._look))
            yield Panel("effect", lambda width, height: self._effect_lines())
            yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        for panel in self.query(Panel):
            panel.styles_in_use = self._styles_of_roles
        self._judge()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._tuner is not None or action not in ("apply", "undo", "reset")

    def _renew(self) -> None:
        for panel in self.query(Panel):
            panel.renew()

    # What it would have done -------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """In a thread; a newer wish takes the place of an older one."""
        self.run_worker(self._compare, thread=True, exclusive=True, group="comparison")

    def _compare(self) -> None:
        base = base_in(self._document)
        if self._whatif is None:
            self._whatif = WhatIf(looks_of(self._moments), base)
        changed, _ = check(self._draft.changes, base)
        effects = self._whatif.effect(base), self._whatif.effect(changed)
        if self.is_attached:
            self.app.call_from_thread(self._take, effects)

    def _take(self, effects: tuple[Effect, Effect]) -> None:
        self._effects = effects
        self._renew()

    def _effect_lines(self) -> list[list[Cell]]:
        if self._effects is None or self._whatif is None:
            return [[Cell("replaying the last minutes", Role.FAINT)]]
        if not len(self._whatif):
            return [[Cell("nothing was seen yet that could be replayed", Role.FAINT)]]
        words = "".join(f" {key}={value_text(value)}" for key, value in self._draft.changes.items())
        title = f"over the last {self._whatif.span_s:.0f} s" + (f", with{words}" if words else "")
        lines = [[Cell(title, Role.STRONG)], *effect_lines(*self._effects, self._look)]
        if words:
            command = with_socket(f"tfctl tune{words} --compare", self._look.socket)
            lines.append([Cell(f"the same: {command}", Role.FAINT)])
        return lines

    # Keys --------------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        self._draft.move(by)
        self._renew()

    def action_nudge(self, by: int) -> None:
        self._draft.nudge(by)
        self._renew()
        self._judge()

    def action_drop(self) -> None:
        self._draft.drop()
        self._renew()
        self._judge()

    def action_apply(self, persist: bool) -> None:
        changes = dict(self._draft.changes)
        if not changes:
            self.notify("nothing to apply: left and right change the value under the cursor", timeout=3)
            return
        old = [row for row in self._document.tunables if row.key in changes]
        wish = TuneRequest(changes=changes, if_revision=self._document.revision, persist=persist)
        self._carry_out([wish], undo=way_back(old, is_file_changed=persist))

    def action_undo(self) -> None:
        if not self._undo:
            self.notify("nothing was applied here", timeout=3)
            return
        self._carry_out(self._undo.pop(), undo=None)

    def action_reset(self) -> None:
        """The value under the cursor goes back to what profile and settings say."""
        row = self._draft.row
        self._carry_out([TuneRequest(reset=[row.key])], undo=way_back([row], is_file_changed=True))

    def _carry_out(self, wishes: Sequence[TuneRequest], undo: list[TuneRequest] | None) -> None:
        tuner = self._tuner
        if tuner is None:
            return

        def act() -> None:
            for wish in wishes:
                try:
                    document = tuner.tune(wish)
                except TokenFlowError as error:
                    self.app.call_from_thread(self._refused, error)
                    return
            self.app.call_from_thread(self._applied, document, wishes, undo)

        self.run_worker(act, thread=True)

    def _refused(self, error: TokenFlowError) -> None:
        text = error.message + (f"\n{error.hint}" if error.hint else "")
        self.notify(text, severity="error", timeout=6, markup=False)

    def _applied(
        self, document: TunablesDocument, wishes: Sequence[TuneRequest], undo: list[TuneRequest] | None
    ) -> None:
        if undo:
            self._undo.append(undo)
        keys = {key for wish in wishes for key in (*wish.changes, *wish.reset)}
        rows = [row for row in document.tunables if row.key in keys]
        text = ", ".join(f"{row.key} = {value_text(row.value)}" for row in rows) + f" (revision {document.revision})"
        if any(wish.persist for wish in wishes):
            text += "\npersisted: engines that start from now on have it too"
        self.notify(text, timeout=4, markup=False)
        self._document = document
        self._draft = Draft(document.tunables, self._draft.row.key)
        self._renew()
        self._judge()


def base_in(document: TunablesDocument) -> Tunables:
    """The values in force; the defaults where no engine serves."""
    try:
        return base_of(document)
    except TokenFlowError:
        return Tunables()


def looks_of(moments: Sequence[Packed]) -> list[LookAt]:
    """Evenly taken, `_LOOKS` at most; what cannot be read is left out."""
    every = max(-(-len(moments) // _LOOKS), 1)
    looks = []
    for packed in moments[::every]:
        try:
            moment = packed.moment()
        except UnreadableError:
            continue
        if moment.status is not None and moment.requests is not None:
            looks.append(LookAt(moment.at_s, moment.status, moment.requests.requests))
    return looks
