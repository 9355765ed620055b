"""Measuring a server that makes tokens at a known pace."""

import asyncio
import json
import random

import pytest
from aiohttp import web

from tokenflow.errors import OperationError, PermissionDeniedError
from tokenflow.measure.engine_facts import read_facts
from tokenflow.measure.measurement import Options, measure
from tokenflow.measure.points import DecodePoint
from tokenflow.measure.streams import endpoint_of, measure_decode, measure_prefill

STEP_S = 0.02


class PacedServer:
    """All streams get a token at each step; a prompt takes a tenth of a millisecond a token."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []
        self.is_failing = False
        self.left_count = 0
        self.key: str | None = None
        self.step_s = STEP_S

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.prompts.append(body["prompt"])
        if self.is_failing:
            return web.json_response({"error": {"message": "no room"}}, status=503)
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(1e-4 * len(body["prompt"]))
        try:
            for total in range(1, body["max_tokens"] + 1):
                now_s = asyncio.get_running_loop().time()
                await asyncio.sleep(self.step_s - now_s % self.step_s)
                chunk = {"choices": [{"text": "x"}], "usage": {"completion_tokens": total}}
                await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
            await response.write(b"data: [DONE]\n\n")
        except (asyncio.CancelledError, ConnectionError):
            self.left_count += 1
            raise
        return response

    async def info(self, request: web.Request) -> web.Response:
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return web.json_response({"max_total_num_tokens": 4096, "max_running_requests": 8})


@pytest.fixture
async def paced():
    server = PacedServer()
    app = web.Application()
    app.router.add_post("/v1/completions", server.answer)
    app.router.add_get("/get_server_info", server.info)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield server, site.name
    await runner.cleanup()


async def test_decode_is_counted_while_all_streams_run(paced):
    server, url = paced
    sample = await measure_decode(endpoint_of(url, "m"), DecodePoint(4, 50, 10_000), 1.0, random.Random(1))
    assert sample.tok_s == pytest.approx(4 / STEP_S, rel=0.5)  # a busy machine makes the server itself slower
    assert 50 < sample.context_tokens < 250
    assert [len(prompt) for prompt in server.prompts] == [50] * 4


async def test_streams_that_end_end_the_window(paced):
    _, url = paced
    sample = await measure_decode(endpoint_of(url, "m"), DecodePoint(2, 10, 40), 60.0, random.Random(1))
    assert sample.tok_s > 0


async def test_a_slow_engine_gets_more_time(paced):
    server, url = paced
    server.step_s = 0.1
    sample = await measure_decode(endpoint_of(url, "m"), DecodePoint(1, 10, 1000), 0.3, random.Random(1))
    assert sample.tok_s == pytest.approx(10.0, rel=0.5)
    assert sample.context_tokens >= 18  # twenty steps and more, not three


async def test_a_second_measurement_finds_nothing_of_the_first_in_the_engine_s_cache(paced):
    server, url = paced
    for _ in range(2):
        begun = len(server.prompts)
        with pytest.raises(AttributeError, match="status"):  # after the prompts, the daemon would be asked
            await measure(url, "m", None, lambda *_: None, Options(window_s=0.1, is_quick=True))
        assert len(server.prompts) > begun
    half = len(server.prompts) // 2
    first, second = ({tuple(prompt[:4]) for prompt in part} for part in (server.prompts[:half], server.prompts[half:]))
    assert not first & second


async def test_prefill_is_the_fastest_of_a_few(paced):
    server, url = paced
    sample = await measure_prefill(endpoint_of(url, "m"), 1000, 3, random.Random(1))
    assert sample.seconds >= 0.1
    assert len(server.prompts) == 3


async def test_streams_that_fail_are_an_error(paced):
    server, url = paced
    server.is_failing = True
    with pytest.raises(OperationError, match="no room"):
        await measure_decode(endpoint_of(url, "m"), DecodePoint(2, 10, 40), 1.0, random.Random(1))
    with pytest.raises(OperationError, match="no room"):
        await measure_prefill(endpoint_of(url, "m"), 10, 1, random.Random(1))


async def test_the_older_route_is_asked_too(paced):
    _, url = paced
    assert (await read_facts(url)).slot_count == 8


async def test_a_key_goes_along(paced):
    server, url = paced
    server.key = "secret"
    with pytest.raises(PermissionDeniedError, match="HTTP 401"):
        await read_facts(url)
    endpoint = endpoint_of(url, "m", "secret")
    assert (await read_facts(url, endpoint.authorization())).pool_tokens == 4096


async def test_a_server_that_is_not_there(paced):
    with pytest.raises(OperationError, match="does not say"):
        await read_facts("http://127.0.0.1:1")
