"""Questions about SGLang's radix tree that change nothing in it: no order of use, no split of a node.

Rank 0 asks them to decide, and the other ranks do not: a look-up that counts as a use would make the trees differ.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple


class Span(NamedTuple):
    """One node on a stream's path from the root."""

    node_id: int
    tokens: int
    is_on_device: bool
    is_on_host: bool
    is_branched: bool  # more than one stream goes on from here, or did so and is cached still


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


class KvTree:
    """Bound to the radix tree of one rank."""

    def __init__(self, scheduler: Any) -> None:
        self._tree = scheduler.tree_cache

    def path(self, node_id: int) -> list[Span]:
        """The nodes from the root to `node_id`; empty if that node is gone (or is the root)."""
        core = self._tree.tree_core
        try:
            (nodes,) = core.collect_path_info([node_id])
        except KeyError:
            return []
        # A node is written to the host after its parent: from the first that is not there on, none is.
        is_on_host = True
        spans = []
        for node in nodes:
            is_on_host = is_on_host and core.is_backuped(node.node_id)
            tokens = node.path_end - node.path_start
            is_on_device = node.full_value_len is not None
            spans.append(Span(node.node_id, tokens, is_on_device, is_on_host, node.num_children > 1))
        return spans

    def written_tokens(self, node_id: int, tokens: int) -> int:
        """How many of the `tokens` on the path to `node_id` the host has, or will have: copies count once queued."""
        try:
            if self._tree.tree_core.is_backuped(node_id):
                return tokens
        except KeyError:
            return 0
        return min(copies_of(self.path(node_id)).host_tokens, tokens)

    def device_copies(self, req: Any) -> Copies:
        """For a request whose node is not known: what a prefix match would find on the device."""
        from sglang.srt.mem_cache.radix_cache import RadixKey

        tokens = req.origin_input_ids + req.output_ids
        key = RadixKey(tokens, req.extra_key, limit=len(tokens) - 1, cache_salt=req.cache_salt)
        device, _, _ = self._tree.tree_core.match_full_device_prefix(key)
        return Copies(int(device), 0, 0)


def copies_of(spans: Iterable[Span]) -> Copies:
    """Where the KV on a path lies."""
    device = host = both = shared = 0
    shared_node_id = None
    for span in spans:
        device += span.tokens if span.is_on_device else 0
        host += span.tokens if span.is_on_host else 0
        both += span.tokens if span.is_on_device and span.is_on_host else 0
        if span.is_branched and span.is_on_device:
            shared, shared_node_id = device, span.node_id
    return Copies(device, host, both, shared, shared_node_id)
