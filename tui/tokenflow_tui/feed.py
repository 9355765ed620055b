"""Reads the daemon for the live view, and finds it again when it has gone."""

from dataclasses import dataclass
from pathlib import Path

from tfctl.client import Client, find_socket
from tokenflow.errors import BadAnswerError, DaemonUnreachableError, TokenFlowError
from tokenflow.wire import RequestsDocument, StatusDocument


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one look at the daemon gave. `trouble` says why there are no documents."""

    status: StatusDocument | None = None
    requests: RequestsDocument | None = None
    trouble: str | None = None


class Feed:
    """Blocking; belongs into a thread."""

    def __init__(self, path: Path, *, explicit: Path | None = None, timeout_s: float = 3.0) -> None:
        self._explicit = explicit
        self._timeout_s = timeout_s
        self._client: Client | None = Client(path, timeout_s)

    def read(self) -> Snapshot:
        """Status and requests of now. Never raises what a daemon or its absence can cause."""
        try:
            if self._client is None:
                path = find_socket(self._explicit)
                if path is None:
                    return Snapshot(trouble="daemon gone, trying again")
                self._client = Client(path, self._timeout_s)
            return Snapshot(
                status=self._client.get("/v1/status", StatusDocument),
                requests=self._client.get("/v1/requests", RequestsDocument),
            )
        except BadAnswerError as error:
            return Snapshot(trouble=error.message)
        except DaemonUnreachableError:
            self._client = None
            return Snapshot(trouble="daemon gone, trying again")
        except TokenFlowError as error:
            return Snapshot(trouble=error.message)
