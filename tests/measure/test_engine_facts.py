"""Asking an engine how large it is, over HTTP."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tokenflow.errors import OperationError, PermissionDeniedError
from tokenflow.measure.engine_facts import read_facts

SIZES = {"max_total_num_tokens": 4096, "max_running_requests": 8, "version": "0.5.23"}


async def answer(request: web.Request) -> web.Response:
    return (
        web.json_response(SIZES) if request.headers.get("Authorization") == "Bearer right" else web.Response(status=401)
    )


def app(path: str) -> web.Application:
    made = web.Application()
    made.router.add_get(path, answer)
    return made


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
async def test_an_engine_says_how_large_it_is(path):
    async with TestServer(app(path)) as server:
        facts = await read_facts(str(server.make_url("/")), {"Authorization": "Bearer right"})
    assert (facts.slot_count, facts.pool_tokens) == (8, 4096)


@pytest.mark.parametrize(("key", "told"), [(None, "wants a key"), ("wrong", "does not take that key")])
async def test_one_that_wants_another_key_says_how_to_give_it(key, told):
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with TestServer(app("/server_info")) as server:
        with pytest.raises(PermissionDeniedError, match=rf"{told} \(HTTP 401\)") as refused:
            await read_facts(str(server.make_url("/")), headers)
    assert "--api-key-env NAME" in (refused.value.hint or "")


async def test_one_that_does_not_say():
    async with TestServer(app("/elsewhere")) as server:
        with pytest.raises(OperationError, match="HTTP 404"):
            await read_facts(str(server.make_url("/")))
