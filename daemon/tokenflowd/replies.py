"""How documents and errors become HTTP answers, and what stands around every request."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import structlog
from aiohttp import web

from tokenflow.errors import NotFoundError, OperationError, PermissionDeniedError, TokenFlowError, UsageError
from tokenflow.version import __version__
from tokenflow.wire import API_VERSION, Document, ErrorDocument, stamp

log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_HEADERS = {"TokenFlow-Version": __version__, "TokenFlow-Api": API_VERSION}
_BODY_LIMIT_S = 10.0
BodyT = TypeVar("BodyT", bound=msgspec.Struct)


def encode(document: Document) -> bytes:
    return msgspec.json.encode(stamp(document))


def answer(document: Document, status: int = 200) -> web.Response:
    return web.Response(body=encode(document), status=status, content_type="application/json")


def answer_error(error: TokenFlowError) -> web.Response:
    return answer(ErrorDocument(error=error.body()), error.http_status)


async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """For `on_response_prepare`: streams get them too."""
    response.headers.update(_HEADERS)


@web.middleware
async def errors_become_documents(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Nothing but our own documents leaves, whatever goes wrong."""
    try:
        _refuse_browsers(request)
        return await handler(request)
    except TokenFlowError as error:
        return answer_error(error)
    except web.HTTPException as error:
        kind = NotFoundError if error.status == 404 else UsageError
        refusal = answer_error(
            kind(f"{request.method} {request.path}: {error.reason}", hint="GET /v1 shows the version")
        )
        refusal.set_status(error.status)
        return refusal
    except (ConnectionResetError, BrokenPipeError):
        raise  # the client is gone: there is nobody to answer
    except Exception as error:
        log.exception("request_failed", method=request.method, path=request.path)
        return answer_error(OperationError(f"internal error: {type(error).__name__}: {error}", hint="tfctl status"))


def _refuse_browsers(request: web.Request) -> None:
    """A page must not reach the daemon through a proxy on this host: DNS rebinding."""
    for header in ("Origin", "Referer"):
        if header in request.headers:
            raise PermissionDeniedError(f"requests with a header {header} are refused", hint="use tfctl")


async def read_body(request: web.Request, kind: type[BodyT]) -> BodyT:
    """An empty body counts as `{}`. Raises UsageError."""
    try:
        async with asyncio.timeout(_BODY_LIMIT_S):
            body = await request.read()
        return msgspec.json.decode(body or b"{}", type=kind)
    except TimeoutError:
        raise UsageError(
            f"{request.method} {request.path}: the body did not come within {_BODY_LIMIT_S:g} s", hint="see docs/api.md"
        ) from None
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise UsageError(f"{request.method} {request.path}: {error}", hint="see docs/api.md") from error
