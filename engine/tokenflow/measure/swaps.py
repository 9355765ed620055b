"""Pauses and resumes of single streams by an operator's hand: what they cost on this engine."""

import asyncio
import contextlib
import random
import statistics
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from tokenflow.errors import OperationError
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.run import LoadRun
from tokenflow.measure.streams import stream_plan
from tokenflow.policy.states import RequestState
from tokenflow.wire import RequestRow, StatusDocument, Transfers

_LOOK_S = 0.05
_LIMIT_S = 60.0


class Operator(Protocol):
    """The daemon's hand, as far as measuring needs it. Calls block for a moment."""

    def status(self) -> StatusDocument: ...

    def row(self, rid: str) -> RequestRow | None: ...

    def hold(self, rid: str) -> None: ...

    def unhold(self, rid: str) -> None: ...


@dataclass(slots=True)
class SwapSamples:
    """What the engine's own telemetry said after each pause and resume. None: it said nothing."""

    d2h_bytes_s: list[float] = field(default_factory=list)
    h2d_bytes_s: list[float] = field(default_factory=list)
    bytes_per_token: float | None = None
    evict_s: float | None = None
    load_s: float | None = None
    schedule_s: float | None = None

    def bandwidth(self, direction: str) -> float | None:
        """Bytes per second, the median."""
        found = self.d2h_bytes_s if direction == "d2h" else self.h2d_bytes_s
        return statistics.median(found) if found else None


async def measure_swaps(
    endpoint: Endpoint, operator: Operator, prompt_tokens: int, room_tokens: int, cycles: int, rng: random.Random
) -> SwapSamples:
    """A long stream is paused until the host has its KV and nothing else does, and is brought back, `cycles` times."""
    found = SwapSamples()
    async with _stream(endpoint, prompt_tokens, room_tokens, rng) as rid:
        for _ in range(cycles):
            before = operator.status().transfers
            operator.hold(rid)
            row = await _row_when(operator, rid, _is_away)
            middle = operator.status().transfers
            _note(found.d2h_bytes_s, middle.d2h.total_bytes - before.d2h.total_bytes, middle.d2h.bandwidth_bytes_s)
            moved_tokens = row.kv_host_tokens or 0
            operator.unhold(rid)
            await _row_when(operator, rid, lambda row: row.state is RequestState.RUNNING)
            after = await _settled(operator)
            loaded_bytes = after.h2d.total_bytes - middle.h2d.total_bytes
            _note(found.h2d_bytes_s, loaded_bytes, after.h2d.bandwidth_bytes_s)
            if loaded_bytes and moved_tokens:
                found.bytes_per_token = loaded_bytes / moved_tokens
    latency = operator.status().latency
    found.evict_s, found.load_s, found.schedule_s = latency.evict_s.p99, latency.load_s.p99, latency.schedule_s.p99
    return found


def _is_away(row: RequestRow) -> bool:
    """Paused, and its KV lies on the host: nothing of it is on the device any more, or next to nothing."""
    host, device = row.kv_host_tokens or 0, row.kv_device_tokens or 0
    return row.state is RequestState.PREEMPTED and host > 0 and device < host // 4


def _note(samples: list[float], moved_bytes: int, bandwidth_bytes_s: float | None) -> None:
    if moved_bytes > 0 and bandwidth_bytes_s:
        samples.append(bandwidth_bytes_s)


async def _settled(operator: Operator) -> Transfers:
    """The transfers once telemetry has been told of the load."""
    await asyncio.sleep(4 * _LOOK_S)
    return operator.status().transfers


@contextlib.asynccontextmanager
async def _stream(endpoint: Endpoint, prompt_tokens: int, room_tokens: int, rng: random.Random) -> AsyncIterator[str]:
    """One running stream's id."""
    run = LoadRun(endpoint, [stream_plan(0, prompt_tokens, room_tokens, rng)])
    task = asyncio.create_task(run.execute())
    (recorder,) = run.recorders
    try:
        async with asyncio.timeout(_LIMIT_S):
            while recorder.token_count < 2:
                if recorder.outcome is not None:
                    raise OperationError(f"the stream failed: {recorder.result().error}", hint="tfctl logs -n 50")
                await asyncio.sleep(_LOOK_S)
        if recorder.rid is None:
            raise OperationError("the engine's plugin is not at work: no request has an id", hint="tfctl status")
        yield recorder.rid
    except TimeoutError as error:
        raise OperationError("pausing and resuming a stream took too long", hint="tfctl ps; tfctl events") from error
    finally:
        run.cancel()
        await task


async def _row_when(operator: Operator, rid: str, condition: Callable[[RequestRow], bool]) -> RequestRow:
    """Raises TimeoutError."""
    async with asyncio.timeout(_LIMIT_S):
        while True:
            row = operator.row(rid)
            if row is not None and not row.state.is_live:
                raise OperationError(f"the stream has ended as {row.state} while it was paused", hint="tfctl events")
            if row is not None and condition(row):
                return row
            await asyncio.sleep(_LOOK_S)
