"""`python -m tokenflow.measure.copies [SECONDS]`: bytes per second between host and device, alone and at once, as JSON.

With a CUDA device the host memory is pinned and each direction has a stream of its own. Without one the copies go from
host to host, in threads.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import cast

BLOCK_BYTES = 64 << 20
_COPIES_AT_ONCE = 4


class Copier:
    """One direction: copies the same block again and again. `run` returns bytes per second."""

    def __init__(self, name: str, byte_count: int, *, to_device: bool) -> None:
        torch = self._torch = _torch()
        self.name = name
        self._has_gpu = torch.cuda.is_available()
        host = torch.empty(byte_count, dtype=torch.uint8, pin_memory=self._has_gpu)
        device = torch.empty(byte_count, dtype=torch.uint8, device="cuda" if self._has_gpu else "cpu")
        self._target, self._source = (device, host) if to_device else (host, device)
        self._stream = torch.cuda.Stream() if self._has_gpu else None

    def run(self, seconds: float, end: threading.Event | None = None) -> float:
        """At least `seconds`, or until `end` is set; a few copies in any case."""
        self._copy()
        self._wait()
        begin_s, count = time.perf_counter(), 0
        while True:
            for _ in range(_COPIES_AT_ONCE):
                self._copy()
            self._wait()
            count += _COPIES_AT_ONCE
            spent_s = time.perf_counter() - begin_s
            if end.is_set() if end is not None else spent_s >= seconds:
                return float(count * self._source.numel()) / spent_s

    def _copy(self) -> None:
        if self._stream is None:
            self._target.copy_(self._source)
            return
        with self._torch.cuda.stream(self._stream):
            self._target.copy_(self._source, non_blocking=True)

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()


def _torch() -> ModuleType:
    """Importing this module costs nothing."""
    import torch

    return cast(ModuleType, torch)


def together(copiers: list[Copier], seconds: float, work: Callable[[], None] | None = None) -> dict[str, float]:
    """Bytes per second of each while all run, and while `work` runs in this thread."""
    end = threading.Event()
    speeds: dict[str, float] = {}

    def run(copier: Copier) -> None:
        speeds[copier.name] = copier.run(seconds, end)

    threads = [threading.Thread(target=run, args=(copier,)) for copier in copiers]
    for thread in threads:
        thread.start()
    if work is None:
        time.sleep(seconds)
    else:
        work()
    end.set()
    for thread in threads:
        thread.join()
    return speeds


def measure(seconds: float) -> dict[str, object]:
    copiers = [Copier("h2d", BLOCK_BYTES, to_device=True), Copier("d2h", BLOCK_BYTES, to_device=False)]
    alone = {copier.name: copier.run(seconds) for copier in copiers}
    torch = _torch()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"device": device, "alone_bytes_s": alone, "both_bytes_s": together(copiers, seconds)}


if __name__ == "__main__":
    print(json.dumps(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)))
