"""The first question to a server: does it answer, and which model does it serve?"""

import contextlib
from urllib.parse import urlsplit

import aiohttp
import msgspec

from tokenflow.errors import PermissionDeniedError, ServerUnreachableError, UsageError
from tokenflow.loadgen.endpoint import Endpoint

_BODY_LIMIT_BYTES = 1 << 20


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def checked_url(text: str) -> str:
    """`text` if it is an HTTP address with a host. Raises UsageError."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(text)
        _ = parts.port  # raises ValueError where it is no port
        if parts.scheme in ("http", "https") and parts.hostname:
            return text
    raise UsageError(f"{text!r} is not an HTTP address", hint="such as http://127.0.0.1:30000", field="url")


async def find_model(endpoint: Endpoint) -> str:
    """The endpoint's own model where it names one, else the first that the server lists at `/v1/models`.

    Asks in both cases. Raises ServerUnreachableError where nothing answers, PermissionDeniedError where a key is
    wanted, UsageError where no model is named and none is listed.
    """
    url = f"{endpoint.root()}/v1/models"
    timeout = aiohttp.ClientTimeout(total=endpoint.connect_timeout_s)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, headers=endpoint.authorization()) as response,
        ):
            status, body = response.status, await response.content.read(_BODY_LIMIT_BYTES)
    except TimeoutError:
        raise _unreachable(endpoint, f"no answer within {endpoint.connect_timeout_s:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise _unreachable(endpoint, str(error) or type(error).__name__) from None
    if status in (401, 403):
        raise PermissionDeniedError(
            f"{endpoint.root()} wants a key (HTTP {status})", hint="give it with: --api-key-env NAME", field="url"
        )
    if endpoint.model:
        return endpoint.model
    try:
        return msgspec.json.decode(body, type=_Models).data[0].id
    except (msgspec.DecodeError, IndexError):
        raise UsageError(
            f"{url} lists no model (HTTP {status})", hint="name the model: --model NAME", field="model"
        ) from None


def _unreachable(endpoint: Endpoint, reason: str) -> ServerUnreachableError:
    return ServerUnreachableError(
        f"no server answers at {endpoint.root()}: {reason}",
        hint="look whether it runs: tfctl status; or name another: --url URL",
        field="url",
    )
