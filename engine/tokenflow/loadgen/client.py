"""One stream over HTTP: sends the request, decodes the events, tells the recorder."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import aiohttp
import msgspec

from tokenflow.loadgen.acks import AckReporter
from tokenflow.loadgen.chunks import DONE, MalformedChunkError, error_message, parse_chunk
from tokenflow.loadgen.endpoint import ACK_TOKEN_HEADER, REQUEST_ID_HEADER, Endpoint
from tokenflow.loadgen.recorder import StreamRecorder
from tokenflow.loadgen.result import Outcome
from tokenflow.loadgen.sse import EventDecoder, ServerEvent

_ERROR_BODY_LIMIT_BYTES = 65_536
_DRAIN_LIMIT_S = 2.0


def open_session(endpoint: Endpoint) -> aiohttp.ClientSession:
    """A session without a limit on connections: a burst must be a burst, not what a pool lets through."""
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=endpoint.connect_timeout_s, sock_read=endpoint.idle_timeout_s
    )
    return aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))


async def run_stream(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    recorder: StreamRecorder,
    clock_s: Callable[[], float],
    acks: AckReporter | None = None,
) -> None:
    """Runs one stream to its end, good or bad; the recorder holds what happened. With `acks` its reader reports.

    What a server does is an outcome and never an exception. Cancelling the task closes the connection.
    """
    recorder.send(clock_s())
    try:
        async with session.post(
            endpoint.route(), json=endpoint.body(recorder.plan), headers=endpoint.headers(recorder.plan)
        ) as response:
            recorder.respond(response.status, response.headers.get(REQUEST_ID_HEADER))
            if response.status == 200:
                token = response.headers.get(ACK_TOKEN_HEADER)
                reporting = None if acks is None else acks.follow(session, recorder, token, clock_s)
                with _ending(reporting):
                    await _read_events(response, recorder, clock_s)
            else:
                message = await _rejection(response)
                recorder.end(clock_s(), Outcome.REJECTED, f"HTTP {response.status}: {message}")
    except TimeoutError as error:  # aiohttp's ServerTimeoutError is one
        recorder.end(clock_s(), Outcome.TIMED_OUT, str(error) or f"nothing came for {endpoint.idle_timeout_s:g} s")
    except aiohttp.ClientConnectorError as error:
        recorder.end(clock_s(), Outcome.UNREACHABLE, str(error))
    except (aiohttp.ClientError, ConnectionError) as error:
        recorder.end(clock_s(), Outcome.CUT, f"the connection broke: {error or type(error).__name__}")
    finally:
        recorder.end(clock_s(), Outcome.CANCELLED)


@contextlib.contextmanager
def _ending(task: asyncio.Task[None] | None) -> Iterator[None]:
    """The task ends with the block: a stream that has ended is not acked any more."""
    try:
        yield
    finally:
        if task is not None and not task.cancel():
            task.result()  # it ended by itself, so by a fault of ours


async def _read_events(
    response: aiohttp.ClientResponse, recorder: StreamRecorder, clock_s: Callable[[], float]
) -> None:
    decoder = EventDecoder()
    async for piece in response.content.iter_any():
        now_s = clock_s()
        for event in decoder.feed(piece):
            _take(event, now_s, recorder)
            if recorder.outcome is not None:
                await _drain(response, recorder.outcome)
                return
    recorder.end(clock_s(), Outcome.CUT, "the stream ended without [DONE]")


async def _drain(response: aiohttp.ClientResponse, outcome: Outcome) -> None:
    """Reads a complete response to its end: closing right after [DONE] looks like a client that left early."""
    if outcome is not Outcome.COMPLETED:
        return
    try:
        async with asyncio.timeout(_DRAIN_LIMIT_S):
            async for _ in response.content.iter_any():
                pass
    except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError; all tokens are here
        pass


def _take(event: ServerEvent, now_s: float, recorder: StreamRecorder) -> None:
    if event.data == DONE:
        if recorder.finish_reason == "abort":
            recorder.end(now_s, Outcome.FAILED, "the server aborted the request")
        else:
            recorder.end(now_s, Outcome.COMPLETED)
        return
    try:
        chunk = parse_chunk(event)
    except MalformedChunkError as error:
        recorder.end(now_s, Outcome.MALFORMED, str(error))
        return
    if chunk.error is not None:
        recorder.end(now_s, Outcome.FAILED, chunk.error)
        return
    recorder.receive(now_s, chunk)


async def _rejection(response: aiohttp.ClientResponse) -> str:
    """What the server says about the request that it refused, in one line."""
    body = await response.content.read(_ERROR_BODY_LIMIT_BYTES)
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError:
        document = None
    if isinstance(document, dict):
        return error_message(document.get("error", document))
    text = body.decode(errors="replace").strip()
    return text.splitlines()[0][:200] if text else response.reason or "no reason given"
