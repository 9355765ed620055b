"""Keeps the GPUs' latest figures; the event loop never waits for NVML."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from tokenflow.wire import GpuInfo
from tokenflowd.gpus.nvml import Nvml

log = structlog.get_logger()
INTERVAL_S = 2.0
RETRY_S = 60.0  # a driver may be loaded later
STALE_AFTER_S = 15.0  # NVML hangs: what it said before is no news


class Source(Protocol):
    """Where figures come from; asking may block."""

    def read(self) -> list[GpuInfo]: ...


class GpuWatch:
    """Empty where there is no NVML. One thread at a time asks, however long it takes."""

    def __init__(self, open_source: Callable[[], Source] = Nvml) -> None:
        self._open = open_source
        self._source: Source | None = None
        self._gpus: list[GpuInfo] = []
        self._read_s = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def gpus(self) -> list[GpuInfo]:
        return self._gpus if time.monotonic() - self._read_s <= STALE_AFTER_S else []

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Does not wait for a call that hangs. Harmless when repeated."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        is_told = False
        while True:
            try:
                if self._source is None:
                    self._source = await asyncio.to_thread(self._open)
                gpus = await asyncio.to_thread(self._source.read)
            except Exception as error:  # noqa: BLE001 - a driver's fault costs its figures and nothing else
                if not is_told:
                    is_told = True
                    log.info("no_gpu_figures", problem=str(error))
                self._source = None
                await asyncio.sleep(RETRY_S)
                continue
            self._gpus, self._read_s = gpus, time.monotonic()
            await asyncio.sleep(INTERVAL_S if gpus else RETRY_S)
