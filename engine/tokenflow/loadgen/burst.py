"""A run of streams in a thread of its own, with a line about it now and then while somebody wants to read it."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

from tokenflow.loadgen.recorder import StreamRecorder
from tokenflow.loadgen.result import RunResult
from tokenflow.loadgen.run import LoadRun
from tokenflow.loadgen.table import number

LINE_INTERVAL_S = 3.0


class BackgroundBurst:
    """Begins at once. `narrate` starts the lines; `wait` gives the result; `cancel` ends it early, from any thread."""

    def __init__(self, run: LoadRun, say: Callable[[str], None], *, line_interval_s: float = LINE_INTERVAL_S) -> None:
        self._run = run
        self._say = say
        self._line_interval_s = line_interval_s
        self._is_narrated = Event()
        self._loop_ready: Future[asyncio.AbstractEventLoop] = Future()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="burst")
        self._result = self._executor.submit(lambda: asyncio.run(self._main()))

    def narrate(self) -> None:
        self._is_narrated.set()

    @property
    def is_over(self) -> bool:
        return self._result.done()

    def wait(self) -> RunResult:
        """Raises what the run raised: a fault of ours, never a server's."""
        result = self._result.result()
        self._executor.shutdown()
        return result

    def cancel(self) -> None:
        loop = self._loop_ready.result()
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run has just ended by itself
            loop.call_soon_threadsafe(self._run.cancel)

    async def _main(self) -> RunResult:
        self._loop_ready.set_result(asyncio.get_running_loop())
        narrator = asyncio.create_task(self._narrate())
        try:
            return await self._run.execute()
        finally:
            narrator.cancel()

    async def _narrate(self) -> None:
        while True:
            await asyncio.sleep(self._line_interval_s)
            if self._is_narrated.is_set():
                self._say(progress_line(self._run.recorders, self._run.elapsed_s()))


def progress_line(recorders: list[StreamRecorder], now_s: float) -> str:
    """One line about a run in progress."""
    live = [recorder for recorder in recorders if recorder.is_live]
    waiting_count = sum(recorder.token_count == 0 for recorder in live)
    ended_count = sum(recorder.outcome is not None for recorder in recorders)
    runways_s = [recorder.reader.runway_at(now_s) for recorder in live]
    least_s = min((runway_s for runway_s in runways_s if runway_s is not None), default=None)
    token_count = sum(recorder.token_count for recorder in recorders)
    return (
        f"{now_s:5.0f} s  {len(live) - waiting_count} streaming, {waiting_count} waiting for a first token, "
        f"{ended_count} done; {token_count} tokens; least runway {number(least_s, 1)} s"
    )
