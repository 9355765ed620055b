"""Drives a workload: every planned stream is sent at its time, and what was measured is never lost."""

import asyncio
import time
from collections.abc import Callable, Sequence

import aiohttp

from tokenflow.loadgen.acks import AckReporter
from tokenflow.loadgen.client import open_session, run_stream
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.recorder import StreamRecorder
from tokenflow.loadgen.result import RunResult, summarise


class LoadRun:
    """One run of planned streams against one endpoint.

    `execute` returns when the last stream has ended, or soon after `cancel`; `recorders` may be read meanwhile in
    the event loop's thread. If the task that executes it is cancelled, the connections are closed and
    `result` still gives what was measured. `cancel` must be called from the event loop's thread.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        plans: Sequence[StreamPlan],
        *,
        keep_text: bool = False,
        acks: AckReporter | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.recorders = [StreamRecorder(plan, keep_text=keep_text) for plan in plans]
        self._endpoint = endpoint
        self._acks = acks
        self._clock_s = clock_s
        self._start_s: float | None = None
        self._cancelled = asyncio.Event()

    def elapsed_s(self) -> float:
        """Seconds since the start of the run; 0 before."""
        return 0.0 if self._start_s is None else self._clock_s() - self._start_s

    async def execute(self) -> RunResult:
        """Sends the streams. Servers' faults are outcomes of streams, not exceptions."""
        assert self._start_s is None, "a run is executed once"
        self._start_s = self._clock_s()
        async with open_session(self._endpoint) as session:
            tasks = [asyncio.create_task(self._stream(session, recorder)) for recorder in self.recorders]
            watcher = asyncio.create_task(self._cancelled.wait())
            try:
                pending: set[asyncio.Task[None]] = set(tasks)
                while pending and not self._cancelled.is_set():
                    done, _ = await asyncio.wait({*pending, watcher}, return_when=asyncio.FIRST_COMPLETED)
                    for task in done & pending:
                        task.result()  # a fault of ours must not pass as a measurement
                    pending -= done
            finally:
                for task in (*tasks, watcher):
                    task.cancel()
                await asyncio.gather(*tasks, watcher, return_exceptions=True)
        return self.result()

    def cancel(self) -> None:
        """Ends the run early: open streams are closed and count as cancelled."""
        self._cancelled.set()

    def result(self) -> RunResult:
        """What has been measured so far."""
        streams = [recorder.result() for recorder in self.recorders]
        return RunResult(streams=streams, summary=summarise(streams))

    async def _stream(self, session: aiohttp.ClientSession, recorder: StreamRecorder) -> None:
        await asyncio.sleep(recorder.plan.arrival_s - self.elapsed_s())
        await run_stream(session, self._endpoint, recorder, self.elapsed_s, self._acks)
