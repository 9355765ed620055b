"""The live view: header, request table, keys."""

import threading
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from tfctl.output import Look, Role
from tokenflow_tui.feed import Feed, Snapshot
from tokenflow_tui.header import header_lines
from tokenflow_tui.help import HelpScreen
from tokenflow_tui.strips import STYLES, line_text
from tokenflow_tui.table import RequestTable

REFRESH_S = 0.5


class LiveView(App[None]):
    """Shows the daemon at `path`, twice a second."""

    TITLE = "tfctl top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("space", "freeze", "freeze"),
    ]
    CSS = """
    #header { height: auto; padding: 0 0 1 0; text-wrap: nowrap; text-overflow: ellipsis; }
    RequestTable { height: 1fr; background: $background; }
    """

    def __init__(self, path: Path, *, explicit: Path | None = None, use_ascii: bool = False) -> None:
        super().__init__()
        self._look = Look(unicode=not use_ascii)
        self._feed = Feed(path, explicit=explicit)
        self._ended = threading.Event()
        self._latest = Snapshot()
        self.is_frozen = False

    def compose(self) -> ComposeResult:
        yield Static(id="header", markup=False)
        yield RequestTable(self._look)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(RequestTable).focus()
        self._poll()

    def on_unmount(self) -> None:
        self._ended.set()

    @work(thread=True, exclusive=True)
    def _poll(self) -> None:
        while not self._ended.is_set():
            snapshot = self._feed.read()
            if self._ended.is_set():
                return
            self.call_from_thread(self.take, snapshot)
            self._ended.wait(REFRESH_S)

    def take(self, snapshot: Snapshot) -> None:
        """Shows a snapshot; while frozen it is only kept. After a loss the last rows stay, and the loss is told."""
        if snapshot.trouble is not None:
            snapshot = Snapshot(self._latest.status, self._latest.requests, snapshot.trouble)
        self._latest = snapshot
        if not self.is_frozen:
            self._show(snapshot)

    def _show(self, snapshot: Snapshot) -> None:
        lines = (
            [] if snapshot.status is None else [line_text(line) for line in header_lines(snapshot.status, self._look)]
        )
        if snapshot.trouble is not None:
            lines.append(Text(snapshot.trouble, STYLES[Role.BAD]))
        if self.is_frozen:
            lines.append(Text("FROZEN: space goes on", STYLES[Role.WARN]))
        self.query_one("#header", Static).update(Text("\n").join(lines))
        if snapshot.requests is not None:
            self.query_one(RequestTable).set_rows(snapshot.requests.requests)

    def action_freeze(self) -> None:
        """The view stands still; reading the daemon goes on."""
        self.is_frozen = not self.is_frozen
        self._show(self._latest)

    def action_help(self) -> None:
        bindings = [binding for binding in (*self.BINDINGS, *RequestTable.BINDINGS) if isinstance(binding, Binding)]
        self.push_screen(HelpScreen(bindings))
