"""One decision for all tensor-parallel ranks: rank 0's directive rides SGLang's own broadcast of requests.

All ranks take it out of that broadcast in the same turn and carry it out at the same place of their loops. Now and
then, in turns that the directive itself names, they compare what came of it: a rank that has failed or that differs
makes all of them start over, with stock scheduling, in the same turn: see `start_over`.
"""

import zlib
from collections.abc import Callable
from typing import Any

from tokenflow.policy.states import Mode
from tokenflow.sglang.directive import Directive

CHECK_EVERY = 16  # directives; those that change who runs are checked always


class RankExchange:
    """One rank's end. `is_alone`: there is one rank, and nothing is sent or compared."""

    def __init__(self, rank: int, rank_count: int, cpu_group: Any = None) -> None:
        assert 0 <= rank < rank_count
        self.rank = rank
        self._rank_count = rank_count
        self._group = cpu_group
        self._received: Directive | None = None

    @property
    def is_alone(self) -> bool:
        return self._rank_count == 1

    def take(self) -> Directive | None:
        """The directive that came with the last requests, once."""
        received, self._received = self._received, None
        return received

    def receive(self, original: Callable[[list[Any]], list[Any]], local: list[Any], own: Directive | None) -> list[Any]:
        """Around SGLang's broadcast: `own` goes out with it on rank 0; directives are taken out of what comes in.

        Only what comes back was broadcast: SGLang may skip a turn, on all ranks alike.
        """
        arrived = original([*local, own] if own is not None else local)
        directives = [item for item in arrived if isinstance(item, Directive)]
        if not directives:
            return arrived
        self._received = directives[-1]
        return [item for item in arrived if not isinstance(item, Directive)]

    def is_checked(self, directive: Directive) -> bool:
        """Whether the ranks compare themselves after this one; the same answer on all of them."""
        if self.is_alone or directive.mode is not Mode.ENFORCE:
            return False
        return bool(directive.pauses or directive.starts) or directive.sequence % CHECK_EVERY == 0

    def agree(self, digest: int, has_failed: bool) -> bool:
        """Whether no rank has failed and all have the same digest. Every rank must call it in the same turn."""
        if self.is_alone:
            return not has_failed
        import torch

        seen = torch.tensor([int(has_failed), digest, -digest], dtype=torch.int64)
        torch.distributed.all_reduce(seen, op=torch.distributed.ReduceOp.MAX, group=self._group)
        failed, most, least = seen.tolist()
        return not failed and most == -least


def digest_of(scheduler: Any) -> int:
    """A number over what must be the same on all ranks: who runs, who waits, and how much KV there is."""
    running = scheduler.running_batch.reqs if scheduler.running_batch is not None else []
    tree, allocator = scheduler.tree_cache, scheduler.token_to_kv_pool_allocator
    parts = [
        ",".join(f"{req.rid}:{len(req.output_ids)}:{req.kv.kv_committed_len}" for req in running),
        ",".join(req.rid for req in scheduler.waiting_queue),
        str(allocator.available_size()),
        str(tree.evictable_size()),
        str(tree.protected_size()),
    ]
    return zlib.crc32("|".join(parts).encode())
