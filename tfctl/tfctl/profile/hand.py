"""The daemon's hand on requests and mode, as measuring needs it."""

from collections.abc import Iterator
from contextlib import contextmanager

from tfctl.client import Client
from tokenflow.tuning import HoldDocument, TunablesDocument, TuneRequest
from tokenflow.wire import RequestRow, RequestsDocument, StatusDocument


class Hand:
    """Satisfies `tokenflow.measure.measurement.Host` through the daemon."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def status(self) -> StatusDocument:
        return self._client.get("/v1/status", StatusDocument)

    def row(self, rid: str) -> RequestRow | None:
        rows = self._client.get("/v1/requests", RequestsDocument, {"all": 1}).requests
        return next((row for row in rows if row.rid == rid), None)

    def hold(self, rid: str) -> None:
        self._client.post(f"/v1/requests/{rid}/pause", None, HoldDocument)

    def unhold(self, rid: str) -> None:
        self._client.post(f"/v1/requests/{rid}/resume", None, HoldDocument)

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Nothing is written ahead meanwhile: a pause moves all of a stream's KV at once."""
        with self.tuned(mode="enforce", write_through=False):
            yield

    @contextmanager
    def tuned(self, **changes: object) -> Iterator[None]:
        """Puts back the values that were in force."""
        document = self._client.get("/v1/tunables", TunablesDocument)
        before = {row.key: row.value for row in document.tunables if row.key in changes}
        self._client.patch("/v1/tunables", TuneRequest(changes=changes), TunablesDocument)
        try:
            yield
        finally:
            self._client.patch("/v1/tunables", TuneRequest(changes=before), TunablesDocument)
