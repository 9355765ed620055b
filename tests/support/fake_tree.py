"""A radix tree in the terms in which the plugin asks SGLang's about it: nodes, copies, locks, eviction by leaves."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class Node:
    parent: int
    tokens: int
    is_on_device: bool = True
    is_on_host: bool = False
    device_locks: int = 0
    host_locks: int = 0


@dataclass
class Receipt:
    component_host_lock_uuids: dict[str, int] = field(default_factory=dict)

    def to_dec_params(self) -> "Receipt":
        return self


class FakeKvTree:
    """In place of `UnifiedRadixCache` and its core. Node 0 is the root; `land`: copies to the host arrive."""

    def __init__(self, *, has_host_pool: bool = True) -> None:
        self.nodes: dict[int, Node] = {}
        self.tree_core = self
        self.cache_controller = object() if has_host_pool else None
        self.tree_components = ("full",)
        self.ongoing_write_through: dict[int, list[int]] = {}
        self.is_write_back = False
        self.flush_count = 0
        self.asked: list[int] = []  # nodes that a release looked at: ends of paths and what was evicted

    def grow(self, node_id: int, parent: int, tokens: int, **state: bool) -> None:
        self.nodes[node_id] = Node(parent, tokens, **state)

    def land(self) -> None:
        for node_id in self.ongoing_write_through:
            self._lock_path(node_id, -1)
        self.ongoing_write_through.clear()

    def collect_path_info(self, node_ids: list[int]) -> Any:
        self.asked += node_ids
        paths = []
        for wanted in node_ids:
            chain, node_id = [], wanted
            while node_id != 0:
                chain.append((node_id, self.nodes[node_id]))
                node_id = self.nodes[node_id].parent
            end, path = 0, []
            for node_id, node in reversed(chain):
                start, end = end, end + node.tokens
                path.append(
                    SimpleNamespace(
                        node_id=node_id,
                        path_start=start,
                        path_end=end,
                        full_value_len=node.tokens if node.is_on_device else None,
                        num_children=sum(other.parent == node_id for other in self.nodes.values()),
                    )
                )
            paths.append(tuple(path))
        return tuple(paths)

    def is_backuped(self, node_id: int) -> bool:
        return self.nodes[node_id].is_on_host

    def inc_host_lock_ref(self, node_id: int) -> Receipt:
        if not self.nodes[node_id].is_on_host:
            return Receipt()
        self.nodes[node_id].host_locks += 1
        return Receipt({"full": node_id})

    def dec_host_lock_ref(self, node_id: int, receipt: Receipt) -> None:
        assert receipt.component_host_lock_uuids == {"full": node_id}
        self.nodes[node_id].host_locks -= 1
        assert self.nodes[node_id].host_locks >= 0

    def build_backup_kv_action(self, node_id: int) -> list[int]:
        chain = []
        while node_id != 0 and not self.nodes[node_id].is_on_host:
            chain.append(node_id)
            node_id = self.nodes[node_id].parent
        return chain[::-1]

    def _apply_cache_action(self, node_ids: list[int]) -> None:
        for node_id in node_ids:
            self.nodes[node_id].is_on_host = True
            self._lock_path(node_id, 1)
            self.ongoing_write_through[node_id] = [node_id]

    def flush_pending_backups(self) -> None:
        self.flush_count += 1

    def _leaves(self) -> list[int]:
        parents = {node.parent for node in self.nodes.values() if node.is_on_device}
        return [i for i, n in self.nodes.items() if n.is_on_device and not n.device_locks and i not in parents]

    def evictable_size(self) -> int:
        return sum(n.tokens for n in self.nodes.values() if n.is_on_device and not n.device_locks)

    def inc_lock_ref(self, node_id: int) -> Receipt:
        self._lock_path(node_id, 1)
        return Receipt({"full": node_id})

    def dec_lock_ref(self, node_id: int, receipt: Receipt) -> None:
        assert receipt.component_host_lock_uuids == {"full": node_id}
        self._lock_path(node_id, -1)

    def _lock_path(self, node_id: int, change: int) -> None:
        while node_id != 0:
            self.nodes[node_id].device_locks += change
            assert self.nodes[node_id].device_locks >= 0
            node_id = self.nodes[node_id].parent

    def _evict_device_leaf(self, node_id: int, tracker: dict[str, int]) -> int | None:
        self.asked.append(node_id)
        node = self.nodes[node_id]
        assert node_id in self._leaves(), "the real one ends the engine"
        if node.is_on_host:
            node.is_on_device = False
        elif self.is_write_back:
            return node_id
        else:
            del self.nodes[node_id]
        return None
