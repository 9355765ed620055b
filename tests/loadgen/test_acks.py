"""Readers that report their progress: to a server that takes it, refuses it, or knows nothing of it."""

import asyncio

import pytest
from aiohttp import web

from tokenflow.loadgen.acks import AckReporter
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.run import LoadRun


class AckedServer:
    """Sends forty tokens at once, then keeps the stream open until it was acked `until` times (or refused so often)."""

    def __init__(self, *, status: int = 200, has_token: bool = True, until: int = 3) -> None:
        self.acks: list[tuple[str, str | None, dict]] = []
        self.status, self.has_token, self.until = status, has_token, until
        self.enough = asyncio.Event()

    async def stream(self, request: web.Request) -> web.StreamResponse:
        rid = "tf/1"  # a rid is quoted in a path
        headers = {"X-TokenFlow-Request-Id": rid}
        if self.has_token:
            headers["X-TokenFlow-Ack-Token"] = "secret"
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(b'data: {"choices":[{"text":"a"}],"usage":{"completion_tokens":40}}\n\n')
        if self.has_token:
            await self.enough.wait()
        await response.write(b"data: [DONE]\n\n")
        return response

    async def ack(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.acks.append((request.match_info["rid"], request.headers.get("X-TokenFlow-Ack-Token"), body))
        if len(self.acks) >= self.until:
            self.enough.set()
        return web.json_response({}, status=self.status)


@pytest.fixture
async def start():
    runners = []

    async def call(server: AckedServer) -> str:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", server.stream)
        app.router.add_post("/tokenflow/v1/streams/{rid}/ack", server.ack)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return site.name

    yield call
    for runner in runners:
        await runner.cleanup()


async def run(url: str, acks: AckReporter | None, rate_tok_s: float | None = 100.0):
    plan = StreamPlan(index=0, arrival_s=0.0, prompt="x", rate_tok_s=rate_tok_s, max_tokens=40)
    return (await LoadRun(Endpoint(url=url, model="m"), [plan], acks=acks).execute()).streams[0]


def reporter() -> AckReporter:
    return AckReporter(Endpoint(url="unused", model="m"), interval_s=0.02)


async def test_progress_only_grows_and_never_beyond_what_came(start):
    server = AckedServer()
    url = await start(server)
    acks = AckReporter(Endpoint(url=url, model="m"), interval_s=0.02)
    stream = await run(url, acks)
    assert stream.is_complete
    consumed = [body["consumed_tokens"] for _, _, body in server.acks]
    assert consumed == sorted(set(consumed))
    assert 0 < consumed[0] <= consumed[-1] <= 40
    assert {(rid, token) for rid, token, _ in server.acks} == {("tf/1", "secret")}
    assert stream.ack_count >= 2  # the stream may end before the answer to the last one
    assert stream.failed_ack_count == 0
    assert stream.acked_tokens in consumed


async def test_refused_acks_are_counted_and_harm_nothing(start):
    server = AckedServer(status=403)
    url = await start(server)
    stream = await run(url, AckReporter(Endpoint(url=url, model="m"), interval_s=0.02))
    assert stream.is_complete
    assert stream.ack_count == 0
    assert stream.failed_ack_count >= 2
    assert stream.acked_tokens == 0


async def test_a_server_that_gives_no_token_is_not_acked(start):
    server = AckedServer(has_token=False)
    acks = reporter()
    stream = await run(await start(server), acks)
    assert stream.is_complete
    assert acks.unackable_count == 1
    assert server.acks == []


async def test_nobody_acks_unless_asked(start):
    server = AckedServer()
    server.enough.set()
    stream = await run(await start(server), None)
    assert stream.is_complete
    assert server.acks == []


async def test_a_claim_is_a_header_and_no_claim_is_none(server):
    scripted, url = server
    plan = StreamPlan(index=0, arrival_s=0.0, prompt="whole", rate_tok_s=3.0, max_tokens=4)
    for change in ({"claimed_rate_tok_s": 10.0}, {"has_claims": False}, {}):
        await LoadRun(Endpoint(url=url, model="m", **change), [plan]).execute()
    assert [headers.get("X-TokenFlow-Rate") for headers in scripted.headers] == ["10", None, "3"]
