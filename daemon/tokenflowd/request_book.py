"""The requests as the daemon knows them: the live ones of the latest telemetry, and those that ended lately."""

from collections import OrderedDict

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

    def take(self, telemetry: Telemetry) -> None:
        """Replaces the live rows and adds or renews the ended ones."""
        self._live = []
        for row in rows_of(telemetry):
            if row.state.is_live:
                self._live.append(row)
            else:
                first_heard_s, _ = self._ended.get(row.rid, (telemetry.sent_s, row))
                self._ended[row.rid] = (first_heard_s, row)
        while self._ended:
            rid, (heard_s, _) = next(iter(self._ended.items()))
            if len(self._ended) <= KEEP_ENDED_COUNT and telemetry.sent_s - heard_s <= KEEP_ENDED_S:
                break
            del self._ended[rid]

    def rows(self) -> list[RequestRow]:
        """Live rows in order of arrival, then ended ones, the earliest first."""
        return [*self._live, *(row for _, row in self._ended.values())]
