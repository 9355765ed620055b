"""Lets SGLang 0.5.23's HiCache run on the CPU device, where the device pool and the host pool are both ordinary memory.

Four places in it take a GPU host for granted (paths below `sglang/srt/mem_cache/`):

* `pool_host/base.py`: the host pool wants pinned memory, which only a CUDA runtime can give.
* `pool_host/mha.py`: the copy functions are imported for CUDA, HIP and XPU only.
* `pool_host/base.py`: 10 GiB of memory are kept free of host pools, which is more than many a CPU machine has.
* `l2_transfer.py`: a copy is timed with a pair of device events, and those of `torch.cpu` know no time.

Use with `--hicache-io-backend direct --hicache-mem-layout layer_first`, the one layout that is served here.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

HOST_MEMORY_RESERVE_BYTES = 1 << 30  # kept free for everything else on the machine, instead of SGLang's 10 GiB

_APPLIED_MARK = "_tokenflow_cpu_hicache"


class HostClockEvent:
    """A device event for a device without a queue of its own: work is done when its call returns.

    So an event is always reached, waiting takes no time, and the time between two events is host time.
    """

    def __init__(self) -> None:
        self._recorded_ns: int | None = None

    def record(self, stream: object = None) -> None:
        """Takes the time now; `stream` is accepted because device events take one."""
        self._recorded_ns = time.perf_counter_ns()

    def elapsed_time(self, end: "HostClockEvent") -> float:
        """Milliseconds from this event to `end`, as torch's device events give it; both must have been recorded."""
        if self._recorded_ns is None or end._recorded_ns is None:
            raise ValueError("both events must be recorded before the time between them is asked for")
        return (end._recorded_ns - self._recorded_ns) / 1e6

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Returns at once: see the class."""

    def wait(self, stream: object = None) -> None:
        """Returns at once: see the class."""


def make_host_clock_event_pair() -> tuple[HostClockEvent, HostClockEvent, bool]:
    """Replaces `l2_transfer.make_timing_event_pair`: (start, finish, whether they can be timed)."""
    return HostClockEvent(), HostClockEvent(), True


def copy_rows(
    src_layers: Sequence[Any], dst_layers: Sequence[Any], src_indices: Any, dst_indices: Any, page_size: int
) -> None:
    """Replaces `transfer_kv_direct`: copies the token rows `src_indices` of every layer to `dst_indices`."""
    for source, destination in zip(src_layers, dst_layers, strict=True):
        destination[dst_indices] = source[src_indices]


def without_pinning(initialize: Callable[..., None]) -> Callable[..., None]:
    """`HostKVCache.__init__` that leaves the pool's memory pageable, whatever was asked for."""

    @functools.wraps(initialize)
    def wrapped(self: object, *arguments: Any, **options: Any) -> None:
        options["pin_memory"] = False
        initialize(self, *arguments, **options)

    return wrapped


def apply() -> None:
    """Lifts the four limits in this process if it has no CUDA device. Calling it again is harmless."""
    import torch

    if torch.cuda.is_available():
        return
    from sglang.srt.mem_cache import l2_transfer
    from sglang.srt.mem_cache.pool_host import base, mha

    if hasattr(mha, _APPLIED_MARK):
        return
    base.HostKVCache.__init__ = without_pinning(base.HostKVCache.__init__)
    base.HICACHE_HOST_MEMORY_RESERVE_BYTES = HOST_MEMORY_RESERVE_BYTES
    mha.transfer_kv_direct = copy_rows
    l2_transfer.make_timing_event_pair = make_host_clock_event_pair
    setattr(mha, _APPLIED_MARK, True)
