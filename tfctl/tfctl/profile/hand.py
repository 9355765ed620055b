"""The daemon's hand on requests and mode, as measuring needs it."""

from collections.abc import Iterator
from contextlib import contextmanager

from tfctl.client import Client
from tokenflow.policy.states import Mode
from tokenflow.tuning import HoldDocument
from tokenflow.wire import ModeDocument, ModeRequest, RequestRow, RequestsDocument, StatusDocument


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
    def enforcing(self) -> Iterator[None]:
        with self.mode(Mode.ENFORCE):
            yield

    @contextmanager
    def mode(self, wanted: Mode) -> Iterator[None]:
        """Puts back the mode that was in force."""
        before = self._client.get("/v1/mode", ModeDocument).mode
        self._client.put("/v1/mode", ModeRequest(mode=wanted), ModeDocument)
        try:
            yield
        finally:
            if before is not None:
                self._client.put("/v1/mode", ModeRequest(mode=before), ModeDocument)
