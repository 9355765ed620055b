"""Runs a workload once for each seed, with a warm-up before the first, and can be ended at any moment."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from tokenflow.loadgen.acks import AckReporter
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.result import StreamResult
from tokenflow.loadgen.run import LoadRun

_WARM_UP_TOKENS = 16


class SeedResult(msgspec.Struct, kw_only=True):
    """What one seed's run measured. `is_interrupted`: it was ended before its streams were."""

    seed: int
    streams: list[StreamResult]
    is_interrupted: bool
    unackable_count: int


class BenchDriver:
    """`execute` hands each seed's result on as soon as it is there, so that an end loses nothing.

    `cancel` must be called from the event loop's thread. `current` is the run in progress, None between runs.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        plans: Mapping[int, Sequence[StreamPlan]],
        *,
        warm_up_count: int,
        has_acks: bool,
    ) -> None:
        self.current: LoadRun | None = None
        self.current_seed: int | None = None  # None during the warm-up
        self.is_cancelled = False
        self._endpoint = endpoint
        self._plans = plans
        self._warm_up_count = warm_up_count
        self._has_acks = has_acks

    async def execute(self, take: Callable[[SeedResult], None]) -> None:
        """Ends when all seeds have run, or soon after `cancel`."""
        await self._warm_up()
        for seed, plans in self._plans.items():
            if self.is_cancelled:
                return
            acks = AckReporter(self._endpoint) if self._has_acks else None
            run = LoadRun(self._endpoint, plans, acks=acks)
            with self._as_current(run, seed):
                streams = (await run.execute()).streams
            unackable_count = 0 if acks is None else acks.unackable_count
            take(
                SeedResult(
                    seed=seed, streams=streams, is_interrupted=self.is_cancelled, unackable_count=unackable_count
                )
            )

    def cancel(self) -> None:
        """Closes what is open and sends nothing more."""
        self.is_cancelled = True
        if self.current is not None:
            self.current.cancel()

    async def _warm_up(self) -> None:
        """Short streams at once, whose prompts come nowhere else: they must leave nothing in a prefix cache."""
        if not self._warm_up_count:
            return
        plans = [
            StreamPlan(
                index=index,
                arrival_s=0.0,
                prompt=f"Warm-up {index}: count from one to ten.",
                rate_tok_s=None,
                max_tokens=_WARM_UP_TOKENS,
            )
            for index in range(self._warm_up_count)
        ]
        run = LoadRun(self._endpoint, plans)
        with self._as_current(run, None):
            await run.execute()

    @contextlib.contextmanager
    def _as_current(self, run: LoadRun, seed: int | None) -> Iterator[None]:
        self.current, self.current_seed = run, seed
        try:
            yield
        finally:
            self.current = None


async def watch(driver: BenchDriver, report: Callable[[BenchDriver], None], interval_s: float) -> None:
    """Reports on the run in progress every `interval_s`, until it is cancelled."""
    while True:
        await asyncio.sleep(interval_s)
        if driver.current is not None:
            report(driver)
