"""What a server says of its own size: slots, pool, chunk, context."""

from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec

from tokenflow.errors import OperationError, PermissionDeniedError

_ROUTES = ("/server_info", "/get_server_info")  # newer and older SGLang
_LIMIT_S = 20.0
_REFUSED = (401, 403)
_NO_HEADERS: Mapping[str, str] = {}


class EngineFacts(msgspec.Struct, kw_only=True):
    """Of one running engine."""

    slot_count: int
    pool_tokens: int
    chunk_tokens: int  # of one step with prefill
    context_tokens: int  # of one request, prompt and answer
    has_host_pool: bool = False
    version: str | None = None


async def read_facts(url: str, headers: Mapping[str, str] = _NO_HEADERS) -> EngineFacts:
    """Raises OperationError where the server does not say, PermissionDeniedError where it wants another key."""
    timeout = aiohttp.ClientTimeout(total=_LIMIT_S)
    problem = "no answer"
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for route in _ROUTES:
            try:
                async with session.get(url.rstrip("/") + route, headers=headers) as response:
                    if response.status == 200:
                        return facts_of(await response.json(content_type=None))
                    if response.status in _REFUSED:
                        raise _key_error(url, response.status, has_key=bool(headers))
                    problem = f"HTTP {response.status}"
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                problem = str(error) or type(error).__name__
    raise OperationError(f"{url} does not say how large it is: {problem}", hint="tfctl status; tfctl logs -n 50")


def _key_error(url: str, status: int, *, has_key: bool) -> PermissionDeniedError:
    what = "does not take that key" if has_key else "wants a key"
    return PermissionDeniedError(
        f"{url} {what} (HTTP {status})",
        hint="give the one that the engine was started with: tfctl profile measure --api-key-env NAME",
        field="api-key-env",
    )


def facts_of(document: dict[str, Any]) -> EngineFacts:
    """From SGLang's own description. Raises OperationError where a figure is missing."""
    states = document.get("internal_states") or [{}]
    known = {**states[0], **{key: value for key, value in document.items() if value is not None}}

    def number(*names: str) -> int | None:
        found = [known[name] for name in names if isinstance(known.get(name), int | float) and known[name] > 0]
        return int(found[0]) if found else None

    pool = number("max_total_num_tokens", "max_total_tokens")
    slots = number("effective_max_running_requests_per_dp", "max_running_requests")
    if pool is None or slots is None:
        raise OperationError("the engine does not say how many slots and tokens it has", hint="tfctl logs -n 50")
    context = number("context_length", "max_req_input_len") or pool
    return EngineFacts(
        slot_count=slots,
        pool_tokens=pool,
        chunk_tokens=number("chunked_prefill_size") or pool,
        context_tokens=min(context, pool),
        has_host_pool=bool(known.get("enable_hierarchical_cache")),
        version=known.get("version") if isinstance(known.get("version"), str) else None,
    )
