"""The one error tree. Each kind is mapped once to its code, HTTP status and exit code.

TokenFlowError
├── UsageError                2   bad value on the command line
├── UnsupportedError          1   known, but not possible here (yet)
├── OperationError            1   the action was tried and failed
│   ├── EngineFailedError
│   ├── SimulationError       a simulated run cannot go on
│   └── ConflictError             another action is under way, or one is running already
│       └── RevisionError         somebody has changed the tunables meanwhile
├── NotFoundError             1   no such request, operation
├── DaemonUnreachableError   69
│   └── BadAnswerError            something answered the control socket, but not sanely
├── ServerUnreachableError   69   nothing answers where an OpenAI-compatible server was named
├── TimedOutError            75
├── PermissionDeniedError    77
└── ConfigurationError       78   bad contents of a file, or no profile of that name
    ├── ProfileNotFoundError
    ├── ModelError
    ├── HostError                 the machine or the installed packages cannot do it
    ├── PortInUseError
    └── SocketPathError           too long, not writable, owned by somebody else
"""

from typing import ClassVar

from tokenflow.wire import ErrorBody


class TokenFlowError(Exception):
    """Base of every error that a user may see: one message, and a hint that names the next command."""

    code: ClassVar[str] = "internal"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field

    def body(self) -> ErrorBody:
        """The error as it crosses the control socket and as `--json` prints it."""
        return ErrorBody(code=self.code, message=self.message, hint=self.hint, field=self.field)


class UsageError(TokenFlowError):
    code, http_status, exit_code = "usage", 400, 2


class UnsupportedError(TokenFlowError):
    code, http_status, exit_code = "unsupported", 501, 1


class OperationError(TokenFlowError):
    code, http_status, exit_code = "failed", 500, 1


class EngineFailedError(OperationError):
    code, http_status = "engine_failed", 502


class SimulationError(OperationError):
    code = "simulation_failed"


class ConflictError(OperationError):
    code, http_status = "conflict", 409


class RevisionError(ConflictError):
    code, http_status = "revision_mismatch", 412


class NotFoundError(TokenFlowError):
    code, http_status, exit_code = "not_found", 404, 1


class DaemonUnreachableError(TokenFlowError):
    code, http_status, exit_code = "daemon_unreachable", 503, 69


class BadAnswerError(DaemonUnreachableError):
    code, http_status = "bad_answer", 502


class ServerUnreachableError(TokenFlowError):
    code, http_status, exit_code = "server_unreachable", 502, 69


class TimedOutError(TokenFlowError):
    code, http_status, exit_code = "timeout", 504, 75


class PermissionDeniedError(TokenFlowError):
    code, http_status, exit_code = "permission_denied", 403, 77


class ConfigurationError(TokenFlowError):
    code, http_status, exit_code = "invalid_configuration", 422, 78


class ProfileNotFoundError(ConfigurationError):
    code, http_status = "profile_not_found", 404


class ModelError(ConfigurationError):
    code = "model_unusable"


class HostError(ConfigurationError):
    code = "host_unusable"


class SocketPathError(ConfigurationError):
    code = "socket_path"


class PortInUseError(ConfigurationError):
    code = "port_in_use"


def all_kinds() -> dict[str, type[TokenFlowError]]:
    """Every kind of error by its code."""
    kinds: dict[str, type[TokenFlowError]] = {}
    pending: list[type[TokenFlowError]] = [TokenFlowError]
    while pending:
        kind = pending.pop()
        kinds[kind.code] = kind
        pending.extend(kind.__subclasses__())
    return kinds


def from_body(body: ErrorBody) -> TokenFlowError:
    """The error again, on the client's side of the control socket; an unknown code is an OperationError."""
    kind = all_kinds().get(body.code, OperationError)
    return kind(body.message, hint=body.hint, field=body.field)
