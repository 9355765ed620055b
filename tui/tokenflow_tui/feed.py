"""Reads the daemon for the live view, and finds it again when it has gone."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from tfctl.client import Client, find_socket
from tfctl.output import with_socket
from tokenflow.errors import BadAnswerError, DaemonUnreachableError, NotFoundError, TimedOutError, TokenFlowError
from tokenflow.events import EventRow
from tokenflow.tuning import ExplainDocument, TunablesDocument
from tokenflow.wire import RequestsDocument, StatusDocument
from tokenflow_tui.moment import Moment

_FIRST_EVENTS = 256  # at the first look
_FEW_EVENTS, _MANY_EVENTS = 32, 5000  # at every other; and where that did not reach back to the look before
_T = TypeVar("_T")


@dataclass(slots=True)
class Wish:
    """What is to be read beyond status and live requests. Written by the view, read by the feed's thread."""

    explained_rid: str | None = None
    with_ended: bool = False


class Feed:
    """Blocking; belongs into a thread."""

    def __init__(self, path: Path, *, explicit: Path | None = None, timeout_s: float = 3.0) -> None:
        self._explicit = explicit
        self._timeout_s = timeout_s
        self._client: Client | None = Client(path, timeout_s)
        self._seen_sequence: int | None = None
        self._daemon_pid: int | None = None
        self._tuned: tuple[int | None, int] | None = None  # engine and revision of the tunables that were read last
        self._lacks: set[str] = set()  # what this daemon does not know, being older
        self.wish = Wish()

    def read(self) -> Moment:
        """All of now. Never raises what a daemon or its absence can cause."""
        try:
            client = self._client or self._found()
            if client is None:
                return _trouble("daemon gone, trying again", self._said("start it: tfctl start"))
            return self._look(client)
        except BadAnswerError as error:
            return _trouble(error.message, error.hint)
        except DaemonUnreachableError:
            self._client = None
            return _trouble("daemon gone, trying again", self._said("start it: tfctl start"))
        except TimedOutError:
            return _trouble(
                f"the daemon has not answered within {self._timeout_s:g} s, trying again",
                self._said("if it goes on: tfctl doctor"),
            )
        except TokenFlowError as error:
            return _trouble(error.message, error.hint)

    def _said(self, hint: str) -> str:
        return with_socket(hint, self._explicit)

    def _found(self) -> Client | None:
        path = find_socket(self._explicit)
        if path is not None:
            self._client = Client(path, self._timeout_s)
        return self._client

    def _look(self, client: Client) -> Moment:
        status = client.get("/v1/status", StatusDocument)
        if status.daemon is not None and status.daemon.pid != self._daemon_pid:
            self._daemon_pid = status.daemon.pid
            self._seen_sequence = None
            self._lacks.clear()
            self._tuned = None
        query = {"all": 1} if self.wish.with_ended else {}
        moment = Moment(at_s=time.time(), status=status, requests=client.get("/v1/requests", RequestsDocument, query))
        if client.is_other_version:
            moment.daemon_version = client.daemon_version
        moment.events = self._if_known("events", lambda: self._new_events(client)) or []
        tuned = (status.engine.pid, status.policy.revision)
        if status.policy.mode is not None and tuned != self._tuned:
            self._tuned = tuned
            moment.tunables = self._if_known("tunables", lambda: client.get("/v1/tunables", TunablesDocument))
        rid = self.wish.explained_rid
        if rid is not None:
            moment.explained = self._explained(client, rid)
        return moment

    def _new_events(self, client: Client) -> list[EventRow]:
        """Those since the last look. At the first look: the last ones, for the timelines' sake."""
        seen = self._seen_sequence
        rows = self._last_events(client, _FIRST_EVENTS if seen is None else _FEW_EVENTS)
        if seen is not None and rows and rows[0].sequence > seen + 1:
            rows = self._last_events(client, _MANY_EVENTS)
        if rows:
            self._seen_sequence = rows[-1].sequence
        return rows if seen is None else [row for row in rows if row.sequence > seen]

    def _last_events(self, client: Client, count: int) -> list[EventRow]:
        return list(client.stream("/v1/events", EventRow, {"n": count}, silence_s=self._timeout_s))

    def _explained(self, client: Client, rid: str) -> ExplainDocument | None:
        """None for a request that has ended, and where the daemon cannot explain."""
        if "explain" in self._lacks:
            return None
        try:
            return client.get(f"/v1/requests/{quote(rid, safe='')}/explain", ExplainDocument)
        except (NotFoundError, BadAnswerError) as error:
            if isinstance(error, BadAnswerError) or "/explain" in error.message:  # it is the route that is not found
                self._lacks.add("explain")
            return None
        except (DaemonUnreachableError, TimedOutError):
            raise
        except TokenFlowError:
            return None

    def _if_known(self, name: str, read: Callable[[], _T]) -> _T | None:
        """None from then on where the daemon does not know what is asked for."""
        if name in self._lacks:
            return None
        try:
            return read()
        except (NotFoundError, BadAnswerError):
            self._lacks.add(name)
            return None


def _trouble(text: str, hint: str | None) -> Moment:
    return Moment(at_s=time.time(), trouble=text, trouble_hint=hint)
