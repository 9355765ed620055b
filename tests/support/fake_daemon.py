"""A daemon of the tests: real documents over a real UNIX socket, in a state that the test chooses."""

import json
import socketserver
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
from document_samples import (
    ALIVE,
    STAMP,
    event_rows,
    explain_document,
    fixed,
    request_rows,
    status_document,
    tunables_document,
)

from tokenflow.errors import (
    ConflictError,
    NotFoundError,
    OperationError,
    ProfileNotFoundError,
    RevisionError,
    TokenFlowError,
    UnsupportedError,
    UsageError,
)
from tokenflow.policy.states import Mode, RequestState
from tokenflow.policy.tunables import Tunables, check
from tokenflow.tuning import AbortDocument, HoldDocument, Origin, TunablesDocument, TuneRequest
from tokenflow.version import __version__
from tokenflow.wire import (
    API_VERSION,
    EngineState,
    ErrorDocument,
    ModeDocument,
    ModeRequest,
    OperationDocument,
    OperationState,
    RequestsDocument,
    RestartRequest,
    StartRequest,
    StatusDocument,
    StopRequest,
)

METRICS_TEXT = "# HELP tokenflow_overload 1 or 0.\n# TYPE tokenflow_overload gauge\ntokenflow_overload 0.0\n"


class FakeDaemon:
    """Serves until closed. What it answers is plain data on this object; tests change it."""

    def __init__(self, path: Path, state: EngineState = EngineState.SERVING, *, garbage: bytes | None = None) -> None:
        self.path = path
        self.state = state
        self.garbage = garbage
        self.version = __version__
        self.rows = request_rows()
        self.start_error: TokenFlowError | None = None
        self.on_demand = False
        self.denial: TokenFlowError | None = None  # of whatever may change something
        self.engine_url: str | None = None  # in place of the sample's, while an engine is up
        self.operation_steps = [("loading weights", 0.4), ("warming up", 0.9)]
        self.seen: list[tuple[str, str, bytes]] = []
        self.watch_count = 3
        self.lacks: set[str] = set()  # ends of paths that this daemon, being older, does not know
        self._operations: dict[str, tuple[OperationDocument, list[tuple[str, float]], EngineState]] = {}
        self._server = _Server(str(path), self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
        self.path.unlink(missing_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    # What the routes answer -------------------------------------------------------------------------------------

    def status(self) -> StatusDocument:
        document = status_document(self.state, str(self.path))
        document.daemon.on_demand = self.on_demand
        if self.engine_url is not None and document.engine.url is not None:
            document.engine.url = self.engine_url
        return document

    def requests(self, query: dict[str, str]) -> RequestsDocument:
        rows = [row for row in self.rows if query.get("state") in (None, row.state)]
        limit = int(query.get("limit", len(rows)))
        return fixed(RequestsDocument(requests=rows[:limit], total_count=len(rows)))

    def tune(self, wish: TuneRequest) -> TunablesDocument:
        is_alive = self.state in ALIVE
        if not (is_alive or wish.persist or wish.reset):
            raise ConflictError("no engine is serving, so there is nothing to tune", hint="tfctl start")
        if wish.if_revision not in (None, 0):
            raise RevisionError("the tunables are at revision 0 by now", hint="look at them again: tfctl tune")
        tunables, problems = check(wish.changes, Tunables())
        if problems:
            text = "; ".join(problem.message for problem in problems)
            raise UsageError(text, hint="see every key with its range: tfctl tune", field=problems[0].key)
        revision = 0 if wish.dry_run or not is_alive else 1
        document = tunables_document(tunables if is_alive else None, tuned=tuple(wish.changes), revision=revision)
        document.dry_run = wish.dry_run
        for row in document.tunables:
            if wish.persist and not wish.dry_run and row.key in wish.changes:
                row.persisted, row.origin = getattr(tunables, row.key), Origin.PERSISTED if is_alive else None
        return document

    def begin(self, kind: str, target: EngineState) -> OperationDocument:
        operation = fixed(
            OperationDocument(
                id=f"op-{len(self._operations) + 1}", kind=kind, state=OperationState.RUNNING, started_at=STAMP
            )
        )
        self._operations[operation.id] = (operation, list(self.operation_steps), target)
        return operation

    def advance(self, operation_id: str) -> OperationDocument:
        operation, steps, target = self._operations[operation_id]
        if steps:
            operation.progress, operation.progress_ratio = steps.pop(0)
            return operation
        operation.finished_at = STAMP
        if self.start_error is not None and operation.kind == "start":
            operation.state, operation.error = OperationState.FAILED, self.start_error.body()
        else:
            operation.state, self.state = OperationState.DONE, target
            operation.result = {"url": "http://127.0.0.1:30000"}
        return operation


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, path: str, daemon: FakeDaemon) -> None:
        self.fake = daemon
        super().__init__(path, _Handler)

    def handle_error(self, request, client_address) -> None:
        """A client that leaves early is part of some tests."""


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format, *args) -> None:
        """Quiet."""

    def address_string(self) -> str:
        return "unix"

    def handle_one_request(self) -> None:
        fake: FakeDaemon = self.server.fake
        if fake.garbage is not None:
            self.request.recv(65536)
            self.wfile.write(fake.garbage)
            self.close_connection = True
            return
        super().handle_one_request()

    def _answer(self) -> None:
        fake: FakeDaemon = self.server.fake
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fake.seen.append((self.command, self.path, body))
        try:
            self._route(fake, url.path, query, body)
        except TokenFlowError as error:
            self._send(fixed(ErrorDocument(error=error.body())), error.http_status)

    do_GET = do_POST = do_PUT = do_PATCH = _answer

    def _route(self, fake: FakeDaemon, path: str, query: dict[str, str], body: bytes) -> None:
        if any(path.endswith(end) for end in fake.lacks):
            self.send_error(404)
            return
        if fake.denial is not None and self.command != "GET":
            raise fake.denial
        match self.command, path:
            case "GET", "/v1/status":
                self._send_or_watch(query, fake.status)
            case "GET", "/v1/requests":
                self._send_or_watch(query, lambda: fake.requests(query))
            case "GET", "/v1/mode":
                alive = fake.state in ALIVE
                self._send(fixed(ModeDocument(mode=Mode.OBSERVE if alive else None, revision=3)))
            case "PUT", "/v1/mode":
                wanted = msgspec.json.decode(body, type=ModeRequest).mode
                if wanted is Mode.ENFORCE:
                    raise UnsupportedError("enforcing does not exist yet", hint="tfctl mode observe")
                if fake.state not in ALIVE:
                    raise OperationError("no engine runs", hint="tfctl start")
                self._send(fixed(ModeDocument(mode=wanted, revision=4)))
            case "GET", "/v1/tunables":
                self._send(tunables_document(Tunables() if fake.state in ALIVE else None))
            case "PATCH", "/v1/tunables":
                self._send(fake.tune(msgspec.json.decode(body, type=TuneRequest)))
            case "POST", "/v1/requests/tf-00000000000000a1/pause" | "/v1/requests/tf-00000000000000a1/resume":
                rid, _, action = path.removeprefix("/v1/requests/").partition("/")
                self._send(fixed(HoldDocument(rid=rid, is_held=action == "pause", state=RequestState.RUNNING)))
            case "POST", "/v1/requests/tf-00000000000000a1/abort":
                self._send(fixed(AbortDocument(rid="tf-00000000000000a1", state=RequestState.RUNNING)))
            case "GET", "/v1/requests/tf-00000000000000a1/explain":
                self._send(explain_document())
            case _, _ if path.startswith("/v1/requests/"):
                raise NotFoundError("there is no such request in the engine", hint="tfctl ps")
            case "GET", "/v1/events":
                rows = [row for row in event_rows() if row.kind in query.get("kind", row.kind).split(",")]
                self._send_lines([msgspec.json.encode(row) for row in rows[-int(query.get("n", 100)) :]])
            case "GET", "/metrics":
                content = METRICS_TEXT.encode()
                self._head(200, "text/plain; version=0.0.4", len(content))
                self.wfile.write(content)
            case "GET", "/v1/logs":
                lines = [f"line {index}" for index in range(3)][-int(query.get("n", 100)) :]
                self._send_lines([json.dumps({"line": line}).encode() for line in lines])
            case "POST", "/v1/engine/start":
                wanted = msgspec.json.decode(body, type=StartRequest).profile
                if wanted == "nosuch":
                    raise ProfileNotFoundError("no profile is called 'nosuch'", hint="tfctl profile list")
                self._send(fake.begin("start", EngineState.SERVING), 202)
            case "POST", "/v1/engine/stop":
                msgspec.json.decode(body, type=StopRequest)
                self._send(fake.begin("stop", EngineState.STOPPED), 202)
            case "POST", "/v1/engine/restart":
                msgspec.json.decode(body, type=RestartRequest)
                self._send(fake.begin("restart", EngineState.SERVING), 202)
            case "GET", _ if path.startswith("/v1/operations/"):
                self._send(fake.advance(path.rpartition("/")[2]))
            case _:
                self.send_error(404)

    def _send(self, document: msgspec.Struct, http_status: int = 200) -> None:
        content = msgspec.json.encode(document)
        self._head(http_status, "application/json", len(content))
        self.wfile.write(content)

    def _send_or_watch(self, query: dict[str, str], make) -> None:
        if "watch" not in query:
            self._send(make())
        else:
            self._send_lines(msgspec.json.encode(make()) for _ in range(self.server.fake.watch_count))

    def _send_lines(self, lines: Iterable[bytes]) -> None:
        self._head(200, "application/x-ndjson", None)
        for line in lines:
            self.wfile.write(line + b"\n")
            self.wfile.flush()

    def _head(self, http_status: int, content_type: str, length: int | None) -> None:
        self.send_response(http_status)
        self.send_header("Content-Type", content_type)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.send_header("TokenFlow-Version", self.server.fake.version)
        self.send_header("TokenFlow-Api", API_VERSION)
        self.end_headers()
