"""The thread that reads the daemon for the view, and writes down what it reads where that is wanted."""

import threading
from collections.abc import Callable

from tokenflow_tui.feed import Feed
from tokenflow_tui.moment import Moment, Packed, pack
from tokenflow_tui.recording import Recorder

REFRESH_S = 0.5


class Reading:
    """`feed` None: a replay, there is nothing to read."""

    def __init__(self, feed: Feed | None, recorder: Recorder | None) -> None:
        self.feed = feed
        self._recorder = recorder
        self.ended = threading.Event()

    @property
    def note(self) -> str | None:
        """What is to be told of the recording that is made."""
        if self._recorder is None:
            return None
        return self._recorder.problem or f"recording to {self._recorder.path}"

    def run(self, take: Callable[[Moment, Packed | None], None]) -> None:
        """Hands moment after moment to `take` until `end`; blocks. Packing is done here, beside the screen."""
        while self.feed is not None and not self.ended.is_set():
            moment = self.feed.read()
            packed = None if moment.trouble is not None else pack(moment)
            if packed is not None and self._recorder is not None:
                self._recorder.take(packed)
            take(moment, packed)
            self.ended.wait(REFRESH_S)

    def end(self) -> None:
        self.ended.set()
        if self._recorder is not None:
            self._recorder.close()
