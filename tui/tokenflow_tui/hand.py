"""The operator's hand from within the view: what changes something. Blocking; belongs into a thread."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tfctl.client import Client, find_socket, no_daemon
from tokenflow.errors import TokenFlowError
from tokenflow.policy.states import Reason
from tokenflow.tuning import AbortDocument, HoldDocument, TunablesDocument, TuneRequest
from tokenflow.wire import RequestRow


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of it, in one line for people; `hint` names the next command."""

    text: str
    is_done: bool = True
    hint: str | None = None


class OperatorHand:
    """Acts on the daemon that answers now."""

    def __init__(self, explicit: Path | None, timeout_s: float = 10.0) -> None:
        self._explicit = explicit
        self._timeout_s = timeout_s

    def _client(self) -> Client:
        """Raises DaemonUnreachableError."""
        path = find_socket(self._explicit)
        if path is None:
            raise no_daemon()
        return Client(path, self._timeout_s)

    def tune(self, wish: TuneRequest) -> TunablesDocument:
        """All of it or nothing. Raises TokenFlowError."""
        return self._client().patch("/v1/tunables", wish, TunablesDocument)

    def hold_or_let_go(self, row: RequestRow) -> Outcome:
        """A request that an operator holds goes on; another is held."""
        is_held = row.reason is Reason.PREEMPTED_OPERATOR
        action = "resume" if is_held else "pause"
        try:
            document = self._client().post(_path_of(row.rid, action), None, HoldDocument)
        except TokenFlowError as error:
            return _refused(error)
        return Outcome(f"{row.rid}: let go" if is_held else f"{row.rid}: held (it was {document.state})")

    def abort(self, row: RequestRow) -> Outcome:
        """Its client gets what was made so far, and an end."""
        try:
            self._client().post(_path_of(row.rid, "abort"), None, AbortDocument)
        except TokenFlowError as error:
            return _refused(error)
        return Outcome(f"{row.rid}: aborted")


def _path_of(rid: str, action: str) -> str:
    return f"/v1/requests/{quote(rid, safe='')}/{action}"


def _refused(error: TokenFlowError) -> Outcome:
    return Outcome(error.message, is_done=False, hint=error.hint)
