"""Questions about SGLang's radix tree that change nothing in it: no order of use, no split of a node.

Rank 0 asks them to decide, and the other ranks do not: a look-up that counts as a use would make the trees differ.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Span(NamedTuple):
    """One node on a stream's path from the root."""

    node_id: int
    tokens: int
    is_on_device: bool
    is_on_host: bool
    child_count: int


class Copies(NamedTuple):
    """Where the KV of a stream lies, in tokens. `both_tokens` are on the device and on the host.

    `shared_tokens` are on the device and do not come free with this stream: others go on from them. They end at
    `shared_node_id`, which is the same for all who share them.
    """

    device_tokens: int
    host_tokens: int
    both_tokens: int
    shared_tokens: int = 0
    shared_node_id: int | None = None


NO_COPIES = Copies(0, 0, 0)


class KvTree:
    """Bound to the radix tree of one rank."""

    def __init__(self, scheduler: Any) -> None:
        self._tree = scheduler.tree_cache

    def path(self, node_id: int) -> list[Span]:
        """The nodes from the root to `node_id`; empty if that node is gone (or is the root)."""
        core = self._tree.tree_core
        return [
            Span(
                node.node_id,
                node.path_end - node.path_start,
                node.full_value_len is not None,
                core.is_backuped(node.node_id),
                node.num_children,
            )
            for node in self._nodes(node_id) or ()
        ]

    def free_tokens(self, node_id: int) -> int:
        """Device tokens at the end of the path to `node_id` that no request and no copy under way holds.

        Neither of SGLang's trees (in Rust, in Python) says so of a node. A lock holds everything up to the root, so
        what one more lock would take is that end; it is given back at once.
        """
        before = self._tree.evictable_size()
        receipt = self._tree.inc_lock_ref(node_id).to_dec_params()
        held = before - self._tree.evictable_size()
        self._tree.dec_lock_ref(node_id, receipt)
        return int(held)

    def copies(self, node_id: int) -> Copies | None:
        """Where the KV on the path to `node_id` lies; None if that node is gone.

        Both copies begin at the root: SGLang writes a node after its parent, and evicts a parent after its children.
        """
        nodes = self._nodes(node_id)
        if nodes is None:
            return None
        core = self._tree.tree_core
        device = host = shared = 0
        shared_node_id = None
        for node in reversed(nodes):
            if not device and node.full_value_len is not None:
                device = node.path_end
            if device and node.num_children > 1:
                shared, shared_node_id = node.path_end, node.node_id
                break
        for node in reversed(nodes):
            if core.is_backuped(node.node_id):
                host = node.path_end
                break
        return Copies(device, host, min(device, host), shared, shared_node_id)

    def _nodes(self, node_id: int) -> Sequence[Any] | None:
        try:
            (nodes,) = self._tree.tree_core.collect_path_info([node_id])
        except KeyError:
            return None
        return nodes  # type: ignore[no-any-return]

    def written_tokens(self, node_id: int, tokens: int) -> int:
        """How many of the `tokens` on the path to `node_id` the host has, or will have: copies count once queued."""
        try:
            if self._tree.tree_core.is_backuped(node_id):
                return tokens
        except KeyError:
            return 0
        copies = self.copies(node_id)
        return min(copies.host_tokens, tokens) if copies is not None else 0

    def device_copies(self, req: Any) -> Copies:
        """For a request whose node is not known: what a prefix match would find on the device."""
        from sglang.srt.mem_cache.radix_cache import RadixKey

        tokens = req.origin_input_ids + req.output_ids
        key = RadixKey(tokens, req.extra_key, limit=len(tokens) - 1, cache_salt=req.cache_salt)
        device, _, _ = self._tree.tree_core.match_full_device_prefix(key)
        return Copies(int(device), 0, 0)
