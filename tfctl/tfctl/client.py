"""The client of the control socket: HTTP/1.1 over a UNIX socket, with nothing but the standard library and msgspec."""

import http.client
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from tokenflow.errors import (
    BadAnswerError,
    DaemonUnreachableError,
    PermissionDeniedError,
    SocketPathError,
    TimedOutError,
    from_body,
)
from tokenflow.locations import check_socket_path, socket_candidates
from tokenflow.version import __version__
from tokenflow.wire import ErrorDocument

DEFAULT_TIMEOUT_S = 10.0
_T = TypeVar("_T")
Query = Mapping[str, str | int | float | None]
_NO_QUERY: Query = {}


class _UnixConnection(http.client.HTTPConnection):
    """http.client knows TCP only; the socket's path takes the place of the address."""

    def __init__(self, path: Path, timeout_s: float | None) -> None:
        super().__init__("tokenflow", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Client:
    """One daemon's API. Each call opens its own connection; `daemon_version` is known after the first answer."""

    def __init__(self, path: Path, timeout_s: float | None = None) -> None:
        self.path = path
        self.timeout_s = DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s
        self.daemon_version: str | None = None

    @property
    def is_other_version(self) -> bool:
        """The daemon has said that its version is not ours."""
        return self.daemon_version not in (None, __version__)

    def get(self, path: str, kind: type[_T], query: Query = _NO_QUERY, *, extra_s: float = 0.0) -> _T:
        """The answer as `kind`. `extra_s` is added to the time limit: how long the daemon was asked to wait."""
        return self._call("GET", path, kind, None, query, extra_s)

    def get_text(self, path: str) -> str:
        """An answer in plain text: metrics. BadAnswerError where it is something else."""
        with self._translated():
            connection = _UnixConnection(self.path, self.timeout_s)
            try:
                response = self._send(connection, "GET", path, None, _NO_QUERY)
                kind = response.getheader("Content-Type", "no content type")
                if not kind.startswith("text/plain"):
                    raise bad_answer(self.path, f"{path}: {kind}")
                return response.read().decode(errors="replace")
            finally:
                connection.close()

    def post(self, path: str, body: msgspec.Struct | None, kind: type[_T]) -> _T:
        return self._call("POST", path, kind, body, _NO_QUERY, 0.0)

    def put(self, path: str, body: msgspec.Struct, kind: type[_T]) -> _T:
        return self._call("PUT", path, kind, body, _NO_QUERY, 0.0)

    def patch(self, path: str, body: msgspec.Struct, kind: type[_T]) -> _T:
        return self._call("PATCH", path, kind, body, _NO_QUERY, 0.0)

    def stream(
        self, path: str, kind: type[_T], query: Query = _NO_QUERY, *, silence_s: float | None = None
    ) -> Iterator[_T]:
        """NDJSON, line by line, until the daemon ends it. `silence_s`: the longest gap allowed between two lines."""
        with self._translated():
            connection = _UnixConnection(self.path, self.timeout_s)
            try:
                response = self._send(connection, "GET", path, None, query)
                if connection.sock is not None:
                    connection.sock.settimeout(silence_s)
                for line in response:
                    if line.strip():
                        yield _decode(line, kind)
            finally:
                connection.close()

    def _call(
        self,
        method: str,
        path: str,
        kind: type[_T],
        body: msgspec.Struct | None,
        query: Query,
        extra_s: float,
    ) -> _T:
        with self._translated():
            connection = _UnixConnection(self.path, self.timeout_s + extra_s)
            try:
                return _decode(self._send(connection, method, path, body, query).read(), kind)
            finally:
                connection.close()

    def _send(
        self,
        connection: _UnixConnection,
        method: str,
        path: str,
        body: msgspec.Struct | None,
        query: Query,
    ) -> http.client.HTTPResponse:
        wanted = {name: value for name, value in query.items() if value is not None}
        target = f"{path}?{urlencode(wanted)}" if wanted else path
        content = None if body is None else msgspec.json.encode(body)
        headers = {"TokenFlow-Version": __version__, "Accept": "application/json"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        connection.request(method, target, body=content, headers=headers)
        response = connection.getresponse()
        self.daemon_version = response.getheader("TokenFlow-Version") or self.daemon_version
        if response.status >= 400:
            raise _error_of(response)
        return response

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """What can go wrong on the way, in the words of the one error tree."""
        try:
            yield
        except TimeoutError as error:
            raise TimedOutError(
                f"the daemon at {self.path} did not answer within {self.timeout_s:g} s",
                hint="try again with a longer limit: tfctl --timeout 60 ...; or look at the log: tfctl logs",
            ) from error
        except PermissionError as error:
            raise permission_denied(self.path) from error
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as error:
            if self.daemon_version is not None:
                raise daemon_ended() from error
            raise no_daemon() from error
        except (http.client.HTTPException, ConnectionError) as error:
            if not answers(self.path):
                raise daemon_ended() from error  # in the middle of its answer
            raise bad_answer(self.path, type(error).__name__) from error


def answers(path: Path, timeout_s: float = 2.0) -> bool:
    """Whether somebody listens there. A socket that is stale, or not there, does not; PermissionDeniedError if we
    may not ask."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(timeout_s)
        try:
            probe.connect(str(path))
        except PermissionError as error:
            raise permission_denied(path) from error
        except TimeoutError:
            return True  # its backlog is full: somebody is there, and in trouble
        except OSError:
            return False
    return True


def find_socket(explicit: Path | None) -> Path | None:
    """The control socket that answers, or None. PermissionDeniedError if only forbidden ones are there."""
    denied: PermissionDeniedError | None = None
    for path in [explicit] if explicit is not None else socket_candidates():
        check_socket_path(path)
        if explicit is not None:
            _check_is_socket(path)
        try:
            if answers(path):
                return path
        except PermissionDeniedError as error:
            denied = denied or error
    if denied is not None:
        raise denied
    return None


def _check_is_socket(path: Path) -> None:
    """SocketPathError if something else lies there, in the daemon's words. connect() judges what cannot be seen."""
    try:
        is_other = not stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return
    if is_other:
        raise SocketPathError(f"{path} exists and is no socket", hint="choose another: tfctl --socket PATH start")


def wait_until_gone(path: Path, pid: int | None, limit_s: float) -> bool:
    """Waits for a daemon to have ended: its socket answers no more and its process is gone."""
    until_s = time.monotonic() + limit_s
    while answers(path) or (pid is not None and _is_alive(pid)):
        if time.monotonic() > until_s:
            return False
        time.sleep(0.05)
    return True


def _is_alive(pid: int) -> bool:
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return line.rpartition(")")[2].split()[0] != "Z"


def no_daemon() -> DaemonUnreachableError:
    return DaemonUnreachableError("tokenflowd is not running", hint="start it: tfctl start")


def daemon_ended(how: str | None = None) -> DaemonUnreachableError:
    """It answered before, or began to. `how`: what is known of its end."""
    return DaemonUnreachableError(
        "the daemon has ended" + (f" ({how})" if how else ""), hint="start it again: tfctl start"
    )


def bad_answer(path: Path, detail: str) -> BadAnswerError:
    return BadAnswerError(
        f"what answers at {path} is no tokenflowd, or it is broken ({detail})",
        hint="look who listens: ss -xlp; or name another socket: tfctl --socket PATH status",
    )


def permission_denied(path: Path) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"no permission to use the control socket {path}",
        hint="join its group: sudo usermod -aG tokenflow $USER, then log in again; or use sudo",
    )


def _error_of(response: http.client.HTTPResponse) -> Exception:
    content = response.read()
    try:
        return from_body(msgspec.json.decode(content, type=ErrorDocument).error)
    except msgspec.DecodeError:
        return BadAnswerError(
            f"the daemon answered {response.status} {response.reason} without saying why",
            hint="look at the daemon's log, or start it anew: tfctl stop --daemon; tfctl start",
        )


def _decode(content: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise BadAnswerError(
            f"the daemon's answer does not make sense to this tfctl ({error})",
            hint="if it is of another version, start it anew: tfctl stop --daemon; tfctl start",
        ) from error
