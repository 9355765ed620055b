"""The live view: how its parts lie on the screen, and what its keys do."""

import os
import signal
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import work
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Footer, Input

from tfctl.output import Look
from tokenflow.wire import RequestRow
from tokenflow_tui import shot
from tokenflow_tui.acting import Acting
from tokenflow_tui.commands import palette_commands
from tokenflow_tui.feed import Feed
from tokenflow_tui.filter_bar import FilterBar
from tokenflow_tui.hand import OperatorHand
from tokenflow_tui.help import HelpScreen
from tokenflow_tui.history import History
from tokenflow_tui.keys import VIEW_KEYS, allowed
from tokenflow_tui.layout import CSS
from tokenflow_tui.moment import Moment, Packed
from tokenflow_tui.palette import DEFAULT_THEME, THEMES, styles_of
from tokenflow_tui.panel import Panel
from tokenflow_tui.parts import Parts
from tokenflow_tui.reading import REFRESH_S, Reading
from tokenflow_tui.recording import Recorder, Recording
from tokenflow_tui.scene import Scene
from tokenflow_tui.table import RequestTable

DEBUG_ENV = "TOKENFLOW_DEBUG"
LOOKED_BACK_S = 180.0  # what the tuning panel replays


class LiveView(App[None]):
    """Shows the daemon at `path`, twice a second; or a recording."""

    TITLE = "tfctl top"
    BINDINGS: ClassVar[list[BindingType]] = [*VIEW_KEYS]
    CSS = CSS

    def __init__(
        self,
        path: Path | None,
        *,
        explicit: Path | None = None,
        recorder: Recorder | None = None,
        recording: Recording | None = None,
        use_ascii: bool = False,
        is_readonly: bool = False,
        theme: str | None = None,
        say: str | None = None,
    ) -> None:
        super().__init__()
        self.animation_level = "none"
        for own in THEMES:
            self.register_theme(own)
        self.theme = theme or DEFAULT_THEME
        self._look = Look(unicode=not use_ascii, socket=explicit)
        self._is_readonly = is_readonly or recording is not None
        self._reading = Reading(None if path is None else Feed(path, explicit=explicit), recorder)
        self._hand = OperatorHand(explicit)
        self._acting = Acting(self, self._hand, is_ascii=use_ascii)
        self.failure: Exception | None = None  # a fault of the view itself, which has ended it
        self._parts = Parts(self)
        history, note = (None, None) if recording is None else (History.of(recording.moments), recording.problem)
        self.scene = Scene(self._look, history, say=say, note=note)

    def compose(self) -> ComposeResult:
        scene = self.scene
        yield Panel("header", lambda width, height: scene.header(width))
        with Container(id="panels"):
            yield Panel("trends", scene.trends)
            yield Panel("transfers", scene.transfers)
            yield Panel("gpus", scene.gpus)
        with Horizontal(id="body"):
            yield RequestTable(self._look)
            with VerticalScroll(id="side", can_focus=False):
                yield Panel("detail", lambda width, height: scene.detail(width))
        yield Panel("bar", lambda width, height: scene.bar(width))
        yield FilterBar(lambda: self._parts.table.focus())
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.screen.set_class(not self._look.unicode, "ascii")
        self.theme_changed_signal.subscribe(self, lambda _: self._parts.restyle())
        self._parts.restyle()
        self._parts.table.focus()
        self.set_interval(1.0, self._tick)
        self._catch_signals()
        if self.scene.player is not None:
            self._jump()
            self.set_interval(REFRESH_S, self._play)
        else:
            self._poll()

    def on_unmount(self) -> None:
        self._reading.end()

    def _handle_exception(self, error: Exception) -> None:
        """No traceback reaches a user: the view ends, and its command tells what happened in one line."""
        if self.is_headless or os.environ.get(DEBUG_ENV):
            super()._handle_exception(error)
        else:
            self.failure = self.failure or error
            self._terminate(1)

    def _catch_signals(self) -> None:
        """A terminal must be left as it was found, also by `kill` and by a connection that is lost."""
        if threading.current_thread() is threading.main_thread() and self._loop is not None:
            for number in (signal.SIGTERM, signal.SIGHUP):
                self._loop.add_signal_handler(number, self._terminate, 128 + number)

    def _terminate(self, return_code: int) -> None:
        self._reading.ended.set()
        self.exit(return_code=return_code)

    @work(thread=True, exclusive=True)
    def _poll(self) -> None:
        def take(moment: Moment, packed: Packed | None) -> None:
            try:
                self.call_from_thread(self.take, moment, packed)
            except RuntimeError:
                if self.is_running:
                    raise  # else the app has ended meanwhile

        self._reading.run(take)

    def take(self, moment: Moment, packed: Packed | None = None) -> None:
        """Keeps a moment, and shows it unless the view stands elsewhere in time. A loss is told at once."""
        if self._reading.ended.is_set() or not self._parts.are_whole:
            return  # on its way out
        if self._reading.note is not None:
            self.scene.note = self._reading.note
        is_shown = self.scene.take(moment, packed)
        if is_shown:
            self.renew()
        else:
            self._parts.renew("header", "bar")

    def renew(self) -> None:
        """Draws the moment at which the view stands."""
        table = self._parts.table
        rows = self.scene.rows
        if rows is not None:
            table.set_rows(rows)
        self._choose()
        self._parts.show_gpus(self.scene.has_gpus)
        self._parts.renew()

    def _play(self) -> None:
        player = self.scene.player
        if player is not None and player.advance(REFRESH_S):
            self._jump()

    def _choose(self) -> None:
        """The scene is told what the table knows: whose detail is wanted, and what is filtered."""
        table, is_open = self._parts.table, self._parts.screen.has_class("detail")
        self.scene.chosen_rid = table.cursor_rid
        self.scene.filtered = (table.wanted, table.shown_count, table.row_count) if table.wanted else None
        if self._reading.feed is not None:
            self._reading.feed.wish.explained_rid = table.cursor_rid if is_open else None

    def _tick(self) -> None:
        if self.scene.has_trouble:
            self._parts.renew("header")

    def on_resize(self, event: Resize) -> None:
        if self.screen_stack:
            self._parts.fit(event.size)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Read-only, as a replay is: the keys that change something are not there."""
        if action in ("speed", "ended"):
            return (self.scene.player is not None) is (action == "speed")  # a replay has what was seen, and its pace
        return not (self._is_readonly and action in ("hold", "abort"))

    def action_freeze(self) -> None:
        self.scene.freeze_or_go_on()
        self._jump()

    def action_step(self, by_s: float) -> None:
        (self.scene.player or self.scene.clock).step(by_s)
        self._jump()

    def action_speed(self, factor: float) -> None:
        if self.scene.player is not None:
            self.scene.player.change_speed(factor)
            self._parts.renew("bar")

    def _jump(self) -> None:
        self.scene.jump()
        self.renew()

    def action_filter(self) -> None:
        self.query_one(FilterBar).open()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter" and self._parts.are_whole:
            self._parts.table.set_filter(event.value)
            self._choose()
            self._parts.renew("bar")

    def action_go_back(self) -> None:
        """One thing at a time: the detail, the filter, the past."""
        table = self._parts.table
        if self.screen.has_class("detail"):
            self.action_detail()
        elif table.wanted:
            self.query_one(FilterBar).value = ""
        elif not self.scene.clock.is_live and self.scene.player is None:
            self.scene.clock.follow()
            self._jump()

    def action_detail(self) -> None:
        self.screen.toggle_class("detail")
        self._choose()
        self.call_after_refresh(self._parts.renew, "detail")

    def action_scroll_side(self, by: int) -> None:
        self.query_one("#side", VerticalScroll).scroll_relative(y=by * 5, animate=False)

    def on_request_table_opened(self) -> None:
        self.action_detail()

    def on_request_table_cursor_moved(self) -> None:
        if not self._parts.are_whole:
            return  # told on the way out
        self._choose()
        if self.screen.has_class("detail"):
            self._parts.renew("detail")

    def action_show_or_hide(self, name: str) -> None:
        self._parts.show_or_hide(name)
        self.call_after_refresh(self.renew)

    def action_ended(self) -> None:
        if self._reading.feed is not None:
            wish = self._reading.feed.wish
            wish.with_ended = not wish.with_ended
            self.notify("requests that have ended are shown" if wish.with_ended else "live requests only", timeout=2)

    def action_copy(self) -> None:
        rid = self._parts.table.cursor_rid
        if rid is not None:
            self.copy_to_clipboard(rid)
            self.notify(f"copied {rid}", timeout=2)

    def action_shot(self) -> None:
        shot.take(self)

    def action_hold(self) -> None:
        if (row := self._acted_on()) is not None:
            self._acting.hold(row)

    def action_abort(self) -> None:
        if (row := self._acted_on()) is not None:
            self._acting.abort(row)

    def _acted_on(self) -> RequestRow | None:
        """The request under the cursor: never one of the past."""
        if not self.scene.clock.is_live:
            self.notify("the view is not live: space or Esc goes back, then again", severity="warning")
            return None
        row = self._parts.table.cursor_row
        return row if row is not None and row.state.is_live else None

    def action_tune(self) -> None:
        document = self.scene.tunables
        if document is None:
            self.notify("no tunables are known: no engine serves, or its daemon is older", severity="warning")
            return
        from tokenflow_tui.tuning import TuningScreen  # the policy and NumPy: not before they are wanted

        tuner = None if self._is_readonly else self._hand
        styles = styles_of(self.theme_variables)
        self.push_screen(TuningScreen(document, self.scene.looks(LOOKED_BACK_S), tuner, self._look, styles))

    def action_help(self) -> None:
        shown = allowed((*self.BINDINGS, *RequestTable.BINDINGS), self._is_allowed)
        self.push_screen(HelpScreen(shown, self._look))

    def _is_allowed(self, action: str) -> bool:
        return bool(self.check_action(action, ()))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette."""
        yield from super().get_system_commands(screen)
        yield from palette_commands(self, allowed(self.BINDINGS, self._is_allowed))
