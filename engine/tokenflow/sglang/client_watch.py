"""Clients that do not drain what they are sent: their streams become runway, not memory."""

import asyncio
import time

from tokenflow.sglang.aborts import Aborter
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.reporter import DeliveryReporter
from tokenflow.sglang.settings import PluginSettings, SlowClient
from tokenflow.sglang.stream_book import StreamBook
from tokenflow.sglang.streams import StreamContext

LOOK_S = 0.25
BLOCKED_AFTER_S = 0.5  # a send that takes longer waits for the client


class ClientWatch:
    """Looks at the open streams now and then, while there are any."""

    def __init__(
        self,
        book: StreamBook,
        settings: PluginSettings,
        reporter: DeliveryReporter,
        aborter: Aborter,
        guard: FaultGuard,
    ) -> None:
        self._book = book
        self._settings = settings
        self._reporter = reporter
        self._aborter = aborter
        self._guard = guard
        self._is_planned = False

    def wake(self) -> None:
        """A stream has been opened."""
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._is_planned = False
        try:
            now_s = time.monotonic()
            for stream in self._book.open:
                self._look_at(stream, now_s)
        except Exception as error:  # noqa: BLE001 - fail open
            self._guard.record("client watch", error)
        if self._book.open and not self._guard.is_tripped:
            self.wake()

    def _look_at(self, stream: StreamContext, now_s: float) -> None:
        since_s = stream.sending_since_s
        is_blocked = since_s is not None and now_s - since_s > BLOCKED_AFTER_S
        if is_blocked is not stream.is_blocked:
            stream.is_blocked = is_blocked
            self._reporter.report(stream.standing())
        if is_blocked and self._settings.slow_client is SlowClient.ABORT and not stream.is_aborted:
            most = self._settings.max_backlog_tokens
            if any(self._backlog_tokens(stream, rid) > most for rid in stream.choices):
                stream.is_aborted = True
                self._aborter.abort(stream.manager, list(stream.choices))

    def _backlog_tokens(self, stream: StreamContext, rid: str) -> int:
        """What SGLang has made and holds for a response that does not take it. Whoever is blocked takes nothing."""
        state = stream.manager.rid_to_state.get(rid)
        if state is None or not state.out_list:
            return 0
        meta = state.out_list[-1]["meta_info"]
        return int(meta["completion_tokens"]) - stream.choices[rid].sent_tokens
