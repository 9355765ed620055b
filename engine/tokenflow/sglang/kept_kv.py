"""The KV of paused streams: found again by its node, held on the host, and taken off the device where that is asked.

Every rank does the same here at the same place of its loop. What it looks at (nodes, locks, finished copies) is the
same on all ranks too: SGLang acknowledges copies in lockstep.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tokenflow.sglang.directive import DeviceRelease
from tokenflow.sglang.kv_tree import NO_COPIES, Copies, KvTree, Span


@dataclass(slots=True)
class _Kept:
    """One paused stream: the node where its path ends, those before it, and the receipt for its host copy's lock."""

    rid: str
    node_id: int
    ancestors: list[int]
    receipt: Any = None
    release: DeviceRelease | None = None
    freed_tokens: int = 0


class KeptKv:
    """Bound to the scheduler of one rank. `released_tokens` counts what was taken off the device on request."""

    def __init__(self, scheduler: Any) -> None:
        self._cache = scheduler.tree_cache
        self._has_host_pool = getattr(scheduler.tree_cache, "cache_controller", None) is not None
        self._tree = KvTree(scheduler)
        self._kept: dict[str, _Kept] = {}
        self._is_written_anew = False
        self.released_tokens = 0
        self._freed: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, rid: str) -> bool:
        return rid in self._kept

    @property
    def locked_count(self) -> int:
        """Streams whose host copy cannot be evicted now."""
        return sum(kept.receipt is not None for kept in self._kept.values())

    def keep(self, req: Any) -> None:
        """`req` has just been taken out and its KV put into the tree: its copy on the host is held from now on."""
        self.let_go(req.rid)
        if req.last_node is None:
            return
        node_id = int(req.last_node)
        kept = _Kept(req.rid, node_id, [span.node_id for span in self._tree.path(node_id)[:-1]])
        self._kept[req.rid] = kept
        self._lock(kept)

    def let_go(self, rid: str) -> None:
        """The stream runs again or has ended: its host copy is one like any other."""
        kept = self._kept.pop(rid, None)
        if kept is not None and kept.receipt is not None:
            try:
                self._cache.dec_host_lock_ref(kept.node_id, kept.receipt)
            except KeyError:
                pass  # the tree was reset meanwhile, and the lock went with it

    def clear(self) -> None:
        for rid in list(self._kept):
            self.let_go(rid)

    def copies(self, req: Any) -> Copies:
        """Where a stream's KV lies: a paused one's, or what a running one has in the tree. Changes nothing."""
        if req.kv.holds_kv:
            found = self._tree.copies(int(req.last_node)) if req.last_node is not None else None
            return found if found is not None else NO_COPIES
        kept = self._kept.get(req.rid)
        for node_id in (kept.node_id, *reversed(kept.ancestors)) if kept is not None else ():
            if (found := self._tree.copies(node_id)) is not None:
                return found
        return self._tree.device_copies(req)

    def written_tokens(self, req: Any) -> int:
        """Tokens of a running request's KV that the host has too. Changes nothing."""
        if not self._has_host_pool or req.last_node is None:
            return 0
        return self._tree.written_tokens(int(req.last_node), int(req.kv.cache_protected_len))

    def ask_release(self, release: DeviceRelease) -> None:
        """Carried out at once as far as possible, and later by `settle` as copies arrive on the host."""
        kept = self._kept.get(release.rid)
        if kept is None:
            return
        kept.release, kept.freed_tokens = release, 0
        if self._has_host_pool and not release.may_give_up:
            self._write_missing(kept)

    def settle(self, waiting: Collection[Any]) -> None:
        """Once a turn: forgets whoever does not wait any more, and goes on with locks and releases."""
        if not self._kept:
            return
        self._freed = {}
        rids = {req.rid for req in waiting}
        for rid in [rid for rid in self._kept if rid not in rids]:
            self.let_go(rid)
        for kept in self._kept.values():
            if kept.receipt is None:
                self._lock(kept)
        self._release()

    def take_freed(self) -> dict[str, int]:
        """Tokens by rid that `settle` has just taken off the device, once."""
        freed, self._freed = self._freed, {}
        return freed

    def take_writes(self) -> bool:
        """Whether copies were queued since the last call that SGLang has yet to submit."""
        queued, self._is_written_anew = self._is_written_anew, False
        return queued

    def _lock(self, kept: _Kept) -> None:
        """Only a node with a host copy can be locked; a node without one is looked at again at the next turn."""
        if not self._has_host_pool:
            return
        try:
            if not self._cache.tree_core.is_backuped(kept.node_id):
                return
            receipt = self._cache.inc_host_lock_ref(kept.node_id).to_dec_params()
        except KeyError:
            # Evicted from the device before the host had it: what is left ends further up.
            if kept.ancestors:
                kept.node_id = kept.ancestors.pop()
            return
        if receipt.component_host_lock_uuids:
            kept.receipt = receipt

    def _write_missing(self, kept: _Kept) -> None:
        """Queues the copies to the host that lack on the path, as SGLang does when it inserts a node."""
        spans = self._tree.path(kept.node_id)
        if spans and not spans[-1].is_on_host and spans[-1].is_on_device:
            self._cache._apply_cache_action(self._cache.tree_core.build_backup_kv_action(kept.node_id))
            self._is_written_anew = True

    def _release(self) -> None:
        """Frees device copies from the end of each path on, as far as they are nobody else's."""
        for kept in self._kept.values():
            if kept.release is None:
                continue
            spans = self._tree.path(kept.node_id)
            self._free(kept, kept.release, [span for span in spans if span.is_on_device])
            # What is left is used by others, unless a copy of it is on its way: then nothing more will come free.
            under_way = self._cache.ongoing_write_through
            if kept.freed_tokens >= kept.release.tokens or not any(span.node_id in under_way for span in spans):
                kept.release = None

    def _free(self, kept: _Kept, release: DeviceRelease, spans: list[Span]) -> None:
        tracker = dict.fromkeys(self._cache.tree_components, 0)
        free_tokens = self._tree.free_tokens(spans[-1].node_id) if spans else 0
        own_child_count = int(bool(spans) and kept.node_id != spans[-1].node_id)  # the rest of its own path
        for span in reversed(spans):
            if kept.freed_tokens >= release.tokens or not (span.is_on_host or release.may_give_up):
                return
            if span.tokens > free_tokens or span.child_count > own_child_count:
                return
            if self._cache._evict_device_leaf(span.node_id, tracker) is not None:
                return  # under write-back SGLang would copy first; only who needs the room waits for that
            free_tokens -= span.tokens
            own_child_count = 1
            kept.freed_tokens += span.tokens
            self.released_tokens += span.tokens
            self._freed[kept.rid] = self._freed.get(kept.rid, 0) + span.tokens
