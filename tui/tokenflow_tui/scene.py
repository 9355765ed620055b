"""What is to be shown, and where in time: the state of the view without its widgets."""

import time
from collections.abc import Sequence
from dataclasses import replace

from tfctl import formats
from tfctl.output import Look, Role
from tfctl.views.cells import Cell
from tokenflow.tuning import TunablesDocument
from tokenflow.version import __version__
from tokenflow.wire import RequestRow
from tokenflow_tui.bar import filter_cell, time_line
from tokenflow_tui.clock import Clock
from tokenflow_tui.detail import detail_lines
from tokenflow_tui.gpus import gpu_lines
from tokenflow_tui.header import header_lines
from tokenflow_tui.history import History
from tokenflow_tui.moment import Moment, Packed, UnreadableError
from tokenflow_tui.player import Player
from tokenflow_tui.timelines import Timelines
from tokenflow_tui.transfers import transfer_lines
from tokenflow_tui.trends import trend_lines

_ALARM_LIMIT = 3
_REBUILT_COUNT = 120  # moments that the timelines are made of after a jump, at most
_REBUILD_LIMIT_S = 0.15
_NEAR_COUNT = 40  # so many moments forth are taken one by one
_TREND_COUNT = 260
_RESTART_SHOWN_S = 15.0
Lines = list[list[Cell]]


class Scene:
    """Takes moments, and draws the one at which its clock stands. `history`: a recording's, in a replay."""

    def __init__(
        self, look: Look, history: History | None = None, *, say: str | None = None, note: str | None = None
    ) -> None:
        self._look = look
        self.history = history or History()
        self.clock = Clock(self.history)
        self.player = None if history is None else Player(self.clock)
        self.tunables: TunablesDocument | None = None  # as read last
        self.say = say  # to whoever opened the view; stands above all
        self.note = note  # of the recording that is made or played
        self._timelines = Timelines()
        self._shown: Moment | None = None
        self._shown_index: int | None = None  # known while moments are shown one after the other
        self._trouble: str | None = None
        self._trouble_hint: str | None = None
        self._pids: tuple[int | None, int | None] = (None, None)  # of daemon and engine, as last seen
        self._restart: tuple[float, str] | None = None  # when it was noticed, and the words for it
        self._heard_s: float | None = None  # wall time of the last moment without trouble
        self.chosen_rid: str | None = None
        self.filtered: tuple[str, int, int] | None = None  # the filter, rows that match, rows in all

    @property
    def shown(self) -> Moment | None:
        return self._shown

    @property
    def rows(self) -> Sequence[RequestRow] | None:
        """None while nothing was read yet."""
        moment = self._shown
        return moment.requests.requests if moment is not None and moment.requests is not None else None

    @property
    def has_trouble(self) -> bool:
        return self._trouble is not None

    @property
    def has_gpus(self) -> bool:
        return self._shown is not None and self._shown.status is not None and bool(self._shown.status.gpus)

    def take(self, moment: Moment, packed: Packed | None = None) -> bool:
        """Whether what is shown has changed. After a loss the last rows stay, and the loss is told."""
        self._trouble, self._trouble_hint = moment.trouble, moment.trouble_hint
        if moment.trouble is not None:
            return False
        self._heard_s = moment.at_s
        self._notice_restarts(moment)
        self.tunables = moment.tunables or self.tunables
        self.history.append(moment, packed)
        if not self.clock.is_live:
            return False
        self._timelines.take(moment)
        self._shown, self._shown_index = moment, None
        return True

    def _notice_restarts(self, moment: Moment) -> None:
        """What was counted before is gone then; said for a while."""
        status = moment.status
        if status is None or status.daemon is None:
            return
        pids = (status.daemon.pid, status.engine.pid)
        daemon_pid, engine_pid = self._pids
        self._pids = (pids[0], pids[1] or engine_pid)
        if daemon_pid is not None and pids[0] != daemon_pid:
            self._restart = (moment.at_s, "the daemon was restarted")
        elif engine_pid is not None and pids[1] not in (None, engine_pid):
            self._restart = (moment.at_s, "the engine was started anew: its counts begin at zero")

    def freeze_or_go_on(self) -> None:
        """The view stands still, taking moments goes on; a replay is paused, or played on."""
        if self.player is not None:
            self.player.toggle()
        elif self.clock.is_live:
            self.clock.freeze()
        else:
            self.clock.follow()

    def looks(self, span_s: float) -> list[Packed]:
        """The moments of the last `span_s` seconds up to where the clock stands."""
        index = self.clock.index
        if index is None:
            return []
        first = self.history.index_at(self.history.stamp_s(index) - span_s)
        return list(self.history.packed(first, index))

    def jump(self) -> None:
        """The clock was set: takes the moment at which it stands, and what went before it."""
        index, before = self.clock.index, self._shown_index
        if index is None or index == before:
            return
        try:
            if before is not None and before < index <= before + _NEAR_COUNT:
                moments = [packed.moment() for packed in self.history.packed(before + 1, index)]
                for moment in moments:
                    self._timelines.take(moment)
            else:
                moments = self._moments_up_to(index)
                self._timelines.rebuild(moments)
        except UnreadableError as error:
            self._trouble, self._trouble_hint = f"this part cannot be read ({error})", None
            return
        self._shown = moments[-1]
        for moment in moments:
            self.tunables = moment.tunables or self.tunables
        self._shown_index = None if self.clock.is_live else index

    def _moments_up_to(self, index: int) -> list[Moment]:
        """The last one and those before it, as many as can be unpacked in a moment."""
        until_s = time.monotonic() + _REBUILD_LIMIT_S
        moments = [self.history.moment(index)]
        while len(moments) < _REBUILT_COUNT and index - len(moments) >= 0 and time.monotonic() < until_s:
            moments.append(self.history.moment(index - len(moments)))
        return moments[::-1]

    # What the panels show ----------------------------------------------------------------------------------------

    def header(self, width: int) -> Lines:
        moment = self._shown
        lines: Lines = [] if self.say is None else [[Cell(self.say, Role.STRONG)]]
        if moment is not None and moment.status is not None:
            lines += header_lines(moment.status, replace(self._look, width=width), _ALARM_LIMIT)
        if moment is not None and moment.daemon_version is not None:
            text = f"the daemon is {moment.daemon_version}, this view is {__version__}: some of it may be missing"
            lines.append([Cell(text, Role.WARN)])
        if self._trouble is not None:
            hint = [Cell(self._trouble_hint, Role.FAINT)] if self._trouble_hint else []
            lines.append([Cell(self._trouble, Role.BAD), *self._age(), *hint])
        elif moment is None and self.player is None:
            lines.append([Cell("asking the daemon", Role.FAINT)])
        if self._restart is not None and self._heard_s is not None:
            noticed_s, words = self._restart
            if self._heard_s - noticed_s < _RESTART_SHOWN_S:
                lines.append([Cell(words, Role.WARN)])
        if self.clock.is_frozen:
            lines.append([Cell("FROZEN: space goes on", Role.WARN)])
        elif not self.clock.is_live and self.player is None:
            behind = formats.seconds(self.clock.behind_s)
            lines.append([Cell(f"PAST: {behind} ago; ] goes forth, Esc back to live", Role.WARN)])
        if self.note is not None:
            lines.append([Cell(self.note, Role.WARN)])
        return lines

    def _age(self) -> list[Cell]:
        if self._heard_s is None or self._shown is None:
            return []
        age_s = max(time.time() - self._heard_s, 0.0)
        return [Cell(f"what is shown is {age_s:.0f} s old", Role.WARN)]

    def trends(self, width: int, height: int) -> Lines:
        index = self.clock.index
        if index is None:
            return []
        samples = [(packed.at_s, packed.sample) for packed in self.history.packed(index - _TREND_COUNT, index)]
        return trend_lines(samples, width, height, self._look)

    def transfers(self, width: int, height: int) -> Lines:
        if self._shown is None or self._shown.status is None:
            return []
        return transfer_lines(self._shown.status.transfers, self.rows or (), self._look, height)

    def gpus(self, width: int, height: int) -> Lines:
        if self._shown is None or self._shown.status is None:
            return []
        return gpu_lines(self._shown.status.gpus, self._look, height)

    def detail(self, width: int) -> Lines:
        rid, moment = self.chosen_rid, self._shown
        if rid is None or moment is None:
            return [[Cell("no request", Role.FAINT)]]
        timeline = self._timelines.of(rid)
        row = next((row for row in self.rows or () if row.rid == rid), None) or (timeline.row if timeline else None)
        explained = moment.explained if moment.explained is not None and moment.explained.rid == rid else None
        return detail_lines(row, timeline, explained, moment.at_s, self._look, width)

    def bar(self, width: int) -> Lines:
        lines: Lines = []
        if self.filtered is not None:
            lines.append([filter_cell(*self.filtered)])
        index = self.clock.index
        if index is not None and not self.clock.is_live:
            first_s, last_s = self.history.stamp_s(0), self.history.stamp_s(len(self.history) - 1)
            what = "past" if self.player is None else self.player.word
            lines.append(time_line(first_s, self.history.stamp_s(index), last_s, what, width, self._look))
        return lines
