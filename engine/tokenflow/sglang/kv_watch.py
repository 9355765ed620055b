"""How much KV there is room for and how fast it moves: read from SGLang's pools and HiCache's own completions.

Nothing here changes anything: completions are looked at where SGLang keeps them until it takes them itself.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tokenflow.counters import Counters, Direction
from tokenflow.policy.estimator import CostEstimator
from tokenflow.wire import TransferQueue, Transfers


class Pools(NamedTuple):
    """Tokens in the device and host pools at one moment. `cached` can be evicted from the device at once.

    `host_only_tokens` is a lower bound of what lies on the host alone: SGLang evicts that when it needs room there,
    but never the second copy of what is on the device.
    """

    total_tokens: int
    unused_tokens: int
    cached_tokens: int
    host_total_tokens: int
    host_unused_tokens: int
    host_only_tokens: int

    def host_free_tokens(self, needed_tokens: int) -> int:
        """Room for new copies: unused, or held by copies that no live request needs. `needed_tokens` of them do."""
        return self.host_unused_tokens + max(self.host_only_tokens - needed_tokens, 0)


class KvWatch:
    """Bound to the scheduler of one rank. Runs on its thread."""

    def __init__(self, scheduler: Any, costs: CostEstimator, counters: Counters | None = None) -> None:
        self._counters = counters or Counters()
        self._scheduler = scheduler
        self._tree = scheduler.tree_cache
        self._allocator = scheduler.token_to_kv_pool_allocator
        self._controller = getattr(self._tree, "cache_controller", None)
        self._costs = costs
        self._writes = _Direction()
        self._loads = _Direction()
        self.bytes_per_token = _bytes_per_token(self._allocator)

    @property
    def has_host_pool(self) -> bool:
        return self._controller is not None

    def pools(self) -> Pools:
        host_total_tokens = host_unused_tokens = host_only_tokens = 0
        cached_tokens = int(self._tree.evictable_size())
        if self._controller is not None:
            host = self._controller.mem_pool_host
            host_total_tokens, host_unused_tokens = int(host.size), int(host.available_size())
            on_device_tokens = cached_tokens + int(self._tree.protected_size())
            host_only_tokens = max(host_total_tokens - host_unused_tokens - on_device_tokens, 0)
        return Pools(
            int(self._scheduler.max_total_num_tokens),
            int(self._allocator.available_size()),
            cached_tokens,
            host_total_tokens,
            host_unused_tokens,
            host_only_tokens,
        )

    def poll(self, now_s: float) -> None:
        """Takes in the transfers that have finished; call it before the scheduler drops their acknowledgements."""
        controller = self._controller
        if controller is None:
            return
        for byte_count, service_s in self._writes.poll(controller.ack_write_queue):
            self._costs.observe_evict(now_s, byte_count, service_s)
            self._count(Direction.D2H, service_s)
        for byte_count, service_s in self._loads.poll(controller.ack_load_queue):
            self._costs.observe_load(now_s, byte_count, service_s)
            self._count(Direction.H2D, service_s)

    def _count(self, direction: Direction, service_s: float) -> None:
        if service_s > 0.0:  # else nobody timed it
            self._counters.observe_transfer(direction, service_s)

    @property
    def d2h_backlog_bytes(self) -> int:
        return self._writes.pending_bytes

    @property
    def h2d_backlog_bytes(self) -> int:
        return self._loads.pending_bytes

    def transfers(self) -> Transfers:
        return Transfers(d2h=self._writes.document(), h2d=self._loads.document())


class _Direction:
    """One direction's transfers, from their acknowledgements."""

    def __init__(self) -> None:
        self._pending: list[Any] = []
        self._listed: list[Any] = []
        self._total_bytes = 0
        self._bandwidth_bytes_s: float | None = None

    def poll(self, queue: Iterable[Any]) -> list[tuple[int, float]]:
        """(bytes, seconds) of each transfer that has finished since the last call."""
        listed = list(queue)
        known = {id(ack) for ack in self._listed}
        self._pending.extend(ack for ack in listed if id(ack) not in known)
        self._listed = listed  # holds them, so that an id means the same one at the next call
        finished: list[Any] = []
        still: list[Any] = []
        for ack in self._pending:
            (finished if ack.finish_event.query() else still).append(ack)
        self._pending = still
        return [self._measure(ack) for ack in finished]

    def _measure(self, ack: Any) -> tuple[int, float]:
        byte_count = int(ack.num_bytes)
        service_s = float(ack.start_event.elapsed_time(ack.finish_event)) / 1000.0 if ack.timing_enabled else 0.0
        self._total_bytes += byte_count
        if service_s > 0.0:
            self._bandwidth_bytes_s = byte_count / service_s
        return byte_count, service_s

    @property
    def pending_bytes(self) -> int:
        return sum(int(ack.num_bytes) for ack in self._pending)

    def document(self) -> TransferQueue:
        return TransferQueue(
            queue_count=len(self._pending),
            queue_bytes=self.pending_bytes,
            bandwidth_bytes_s=self._bandwidth_bytes_s,
            total_bytes=self._total_bytes,
        )


def _bytes_per_token(allocator: Any) -> float:
    """Device bytes of one token's KV over all layers; 0 where the pool does not say."""
    pool = allocator.get_kvcache()
    try:
        sizes = pool.get_kv_size_bytes()
        total_bytes = sum(sizes) if isinstance(sizes, tuple) else sizes
        return float(total_bytes) / float(pool.size + pool.page_size)  # one page more, for padding
    except (AttributeError, TypeError, NotImplementedError, ZeroDivisionError):
        return 0.0
