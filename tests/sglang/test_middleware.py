"""The middleware in front of small ASGI applications, with SGLang's tokenizer manager played by a generator."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from frontend_rig import Reports

from tokenflow import link
from tokenflow.sglang import settings
from tokenflow.sglang.annotation import is_hidden, read
from tokenflow.sglang.faults import MAX_FAULTS, FaultGuard
from tokenflow.sglang.frontend import Frontend
from tokenflow.sglang.middleware import TokenFlowMiddleware
from tokenflow.sglang.reader_middleware import ReaderMiddleware
from tokenflow.sglang.streams import current_stream
from tokenflow.sglang.tokenizer_hooks import TokenizerHooks


class Client:
    """Sends one request through the middleware and keeps what comes back."""

    def __init__(self, app, path="/v1/chat/completions", method="POST", body=b"", **headers):
        self.request_body = body
        self.rid_to_state = {}
        self.frontend = Frontend(settings.load(), FaultGuard(), Reports(), None)
        self.hooks = TokenizerHooks(self.frontend)
        self.is_ready = True
        inner = ReaderMiddleware(lambda *a: app(self, *a), self.frontend)
        self.app = TokenFlowMiddleware(inner, self.frontend, lambda: self.is_ready)
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        self.scope = {"type": "http", "method": method, "path": path, "headers": raw}
        self.messages = []
        self.has_left = asyncio.Event()

    async def run(self):
        halves = [self.request_body[: len(self.request_body) // 2], self.request_body[len(self.request_body) // 2 :]]

        async def receive():
            if halves:
                return {"type": "http.request", "body": halves.pop(0), "more_body": bool(halves)}
            await self.has_left.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            self.messages.append(message)
            await asyncio.sleep(0)

        await self.app(self.scope, receive, send)

    @property
    def status(self):
        return self.messages[0]["status"]

    @property
    def headers(self):
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.messages[1:])


async def outputs_of(manager, obj, request):
    tokenized = SimpleNamespace(rid=obj.rid, stream=obj.stream, sampling_params=SimpleNamespace(custom_params=None))
    manager.hooks.before_send_one(manager, tokenized)
    manager.seen = read(tokenized.sampling_params)
    manager.is_hidden = is_hidden(tokenized.sampling_params)
    for count in (1, 2, 4):
        yield {"meta_info": {"id": obj.rid, "completion_tokens": count}}


def generation(stream=True, rid=None, n=1, text="hello"):
    return SimpleNamespace(stream=stream, rid=rid, text=text, sampling_params={"n": n})


async def streaming_app(client, scope, receive, send, obj=None):
    obj = obj or generation()
    headers = [(b"content-type", b"text/event-stream"), (b"Cache-Control", b"max-age=9")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async for output in client.hooks.around_generate(outputs_of, client, obj, None):
        text = f"data: {output['meta_info']['completion_tokens']}\n\n"
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


async def test_a_stream_gets_its_id_its_reader_and_anti_buffering_headers():
    client = Client(streaming_app, x_tokenflow_rate="2.5")
    await client.run()
    rid = client.headers["x-tokenflow-request-id"]
    assert client.seen.reader.rate_tok_s == 2.5
    assert client.seen.parent_rid is None
    assert [d.delivered_tokens for d in client.frontend.reporter.deliveries] == [1, 2, 4, 4]
    assert {d.rid for d in client.frontend.reporter.deliveries} == {rid}
    assert client.frontend.reporter.deliveries[-1].is_closed
    assert client.headers["x-accel-buffering"] == "no"
    assert [v for n, v in client.messages[0]["headers"] if n.lower() == b"cache-control"] == [b"no-cache"]
    assert not client.frontend.book.open
    assert current_stream.get() is None


async def test_what_comes_before_the_engine_is_ready_is_its_own_warm_up():
    client = Client(streaming_app)
    client.is_ready = False
    await client.run()
    assert client.is_hidden
    assert client.seen is None


async def test_a_complete_response_is_closed_although_the_application_goes_on():
    async def app(client, scope, receive, send):
        await streaming_app(client, scope, receive, send)
        client.open_after_the_end = len(client.frontend.book.open)

    client = Client(app)
    await client.run()
    assert client.open_after_the_end == 0
    assert [delivery.is_closed for delivery in client.frontend.reporter.deliveries].count(True) == 1


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "fast", ""])
async def test_a_bad_rate_is_refused_before_sglang_sees_it(rate):
    async def never(client, scope, receive, send):
        raise AssertionError("reached SGLang")

    client = Client(never, x_tokenflow_rate=rate)
    await client.run()
    assert client.status == 400
    error = json.loads(client.body)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == "X-TokenFlow-Rate"


async def test_without_stream_nobody_reads_along():
    async def app(client, scope, receive, send):
        async for _ in client.hooks.around_generate(outputs_of, client, generation(stream=False), None):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}", "more_body": False})

    client = Client(app, x_tokenflow_rate="2.5")
    await client.run()
    assert client.seen.reader.class_name == "batch"
    assert client.seen.reader.rate_tok_s is None


async def test_a_clients_own_rid_is_refused():
    async def app(client, scope, receive, send):
        with pytest.raises(ValueError, match="X-TokenFlow-Request-Id"):
            await anext(client.hooks.around_generate(outputs_of, client, generation(rid="mine"), None))

    await Client(app).run()


@pytest.mark.parametrize("obj", [generation(n=2), generation(text=["a", "b"])])
async def test_several_choices_keep_the_ids_that_sglang_mints(obj):
    async def app(client, scope, receive, send):
        async for _ in client.hooks.around_generate(outputs_of, client, obj, None):
            break
        client.rid_given = obj.rid

    client = Client(app)
    await client.run()
    assert client.rid_given is None


async def test_other_routes_pass_untouched():
    async def app(client, scope, receive, send):
        assert current_stream.get() is None
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    client = Client(app, path="/v1/models", method="GET", x_tokenflow_rate="nan")
    await client.run()
    assert client.messages[0]["headers"] == []


async def test_closed_admission_answers_503_at_once():
    async def never(client, scope, receive, send):
        raise AssertionError("admitted")

    client = Client(never)
    client.frontend.is_admission_open = False
    await client.run()
    assert client.status == 503
    assert client.headers["retry-after"] == "10"


async def slow_app(client, scope, receive, send):
    kind = client.kind
    if kind != "not started":
        content_type = b"text/event-stream" if kind == "events" else b"application/json"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", content_type)]})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
    client.is_waiting.set()
    await asyncio.sleep(30)


async def cut(kind):
    client = Client(slow_app)
    client.kind, client.is_waiting = kind, asyncio.Event()
    task = asyncio.create_task(client.run())
    await client.is_waiting.wait()
    client.frontend.cut_streams("the engine was stopped by its operator")
    await asyncio.wait_for(task, 5)
    assert not client.frontend.book.open
    return client


async def test_a_cut_stream_gets_an_error_event_and_a_proper_end():
    client = await cut("events")
    event, done = client.body.decode().removeprefix("data: 1\n\n").strip().split("\n\n")
    error = json.loads(event.removeprefix("data: "))["error"]
    assert error["code"] == "engine_stopped"
    assert "stopped by its operator" in error["message"]
    assert done == "data: [DONE]"
    assert client.messages[-1]["more_body"] is False


async def test_a_cut_response_that_has_not_begun_is_a_503():
    client = await cut("not started")
    assert client.status == 503


async def test_a_client_that_cancels_by_itself_is_not_answered():
    client = Client(slow_app)
    client.kind, client.is_waiting = "events", asyncio.Event()
    task = asyncio.create_task(client.run())
    await client.is_waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert client.messages[-1]["more_body"] is True
    assert not client.frontend.book.open


async def test_a_count_that_cannot_be_read_never_touches_the_output():
    async def odd(manager, obj, request):
        yield {"no": "meta"}

    async def app(client, scope, receive, send):
        client.got = [o async for o in client.hooks.around_generate(odd, client, generation(), None)]

    client = Client(app)
    await client.run()
    assert client.got == [{"no": "meta"}]
    assert client.frontend.guard.fault_count == 1


async def test_a_client_that_left_while_its_request_was_prepared_is_aborted_after_it():
    async def app(client, scope, receive, send):
        client.has_left.set()
        await asyncio.sleep(0.02)
        client.aborted = []

        async def outputs(manager, obj, request):
            client.rid_to_state[obj.rid] = SimpleNamespace(finished=False, abort_sent=False)
            tokenized = SimpleNamespace(rid=obj.rid, stream=True, sampling_params=SimpleNamespace(custom_params=None))
            client.hooks.before_send_one(client, tokenized)
            assert not client.aborted, "the request itself goes first"
            yield {"meta_info": {"id": obj.rid, "completion_tokens": 1}}

        client.abort_request = client.aborted.append
        async for output in client.hooks.around_generate(outputs, client, generation(), None):
            client.rid = output["meta_info"]["id"]
        await asyncio.sleep(0)

    client = Client(app)
    await client.run()
    assert client.aborted == [client.rid]


async def test_hidden_reasoning_is_not_among_what_was_sent():
    async def reasoning(manager, obj, request):
        for total, hidden in ((3, 3), (6, 4)):
            yield {"meta_info": {"id": obj.rid, "completion_tokens": total, "reasoning_tokens": hidden}}

    async def app(client, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async for _ in client.hooks.around_generate(reasoning, client, generation(), None):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})

    client = Client(app)
    await client.run()
    assert [delivery.delivered_tokens for delivery in client.frontend.reporter.deliveries] == [2, 2]


async def test_a_drain_sees_the_streams_that_a_disabled_plugin_does_not_touch():
    seen = []

    async def slow_app(client, scope, receive, send):
        seen.append(client.frontend.answer(link.Ping()).open_stream_count)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    client = Client(slow_app)
    client.frontend.guard.fault_count = MAX_FAULTS
    await client.run()
    assert seen == [1]
    assert client.frontend.answer(link.Ping()).open_stream_count == 0
