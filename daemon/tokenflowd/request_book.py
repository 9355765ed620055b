"""The requests as the daemon knows them: the live ones of the latest telemetry, and those that ended lately."""

from collections import OrderedDict
from collections.abc import Sequence

from tokenflow.link import Telemetry
from tokenflow.rows import rows_of
from tokenflow.wire import RequestRow

KEEP_ENDED_S = 300.0
KEEP_ENDED_COUNT = 512


class RequestBook:
    """The plugin tells of an ended request for a few seconds only; here it stays visible for five minutes."""

    def __init__(self) -> None:
        self._live: list[RequestRow] = []
        self._ended: OrderedDict[str, tuple[float, RequestRow]] = OrderedDict()

    def take(self, each: Sequence[Telemetry]) -> None:
        """Replaces the live rows and adds or renews the ended ones; `each` is the latest of every scheduler.

        A reader is followed to the moment at which its own scheduler spoke: what it was given since is not known.
        """
        now_s = max(telemetry.sent_s for telemetry in each)
        live = []
        for telemetry in each:
            for stream, row in zip(telemetry.streams, rows_of(telemetry), strict=True):
                if row.state.is_live:
                    live.append((stream.arrival_s, row))
                else:
                    first_heard_s, _ = self._ended.get(row.rid, (now_s, row))
                    self._ended[row.rid] = (first_heard_s, row)
        if len(each) > 1:
            live.sort(key=lambda pair: pair[0])
        self._live = [row for _, row in live]
        while self._ended:
            rid, (heard_s, _) = next(iter(self._ended.items()))
            if len(self._ended) <= KEEP_ENDED_COUNT and now_s - heard_s <= KEEP_ENDED_S:
                break
            del self._ended[rid]

    def rows(self) -> list[RequestRow]:
        """Live rows in order of arrival, then ended ones, the earliest first."""
        return [*self._live, *(row for _, row in self._ended.values())]
