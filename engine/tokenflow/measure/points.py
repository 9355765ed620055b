"""Which batches, contexts and prompts are measured on an engine of a given size. Pure."""

from dataclasses import dataclass

from tokenflow.measure.engine_facts import EngineFacts

_CONTEXTS = (64, 256, 1024, 4096, 16_384)
_PREFILLS = (16, 64, 256, 512, 1024, 2048, 4096, 8192)
_POOL_SHARE = 0.85  # what is left over is for what is made meanwhile, and for pages
_LEAST_ROOM_TOKENS = 24  # made by each stream of a point, at least


@dataclass(frozen=True, slots=True)
class DecodePoint:
    """So many streams that begin with prompts of this length and may make so many tokens each."""

    streams: int
    prompt_tokens: int
    room_tokens: int


def decode_points(facts: EngineFacts, *, is_quick: bool) -> list[DecodePoint]:
    """Powers of two and all slots, each at every context that fits. Quick: one, half and all slots, two contexts."""
    counts = sorted({2**power for power in range(20) if 2**power <= facts.slot_count} | {facts.slot_count})
    contexts: tuple[int, ...] = _CONTEXTS
    if is_quick:
        counts = sorted({1, max(1, facts.slot_count // 2), facts.slot_count})
        contexts = _CONTEXTS[:2]
    found = []
    for streams in counts:
        share = int(_POOL_SHARE * facts.pool_tokens / streams)
        for prompt_tokens in contexts:
            room = min(share, facts.context_tokens - 1) - prompt_tokens
            if room >= _LEAST_ROOM_TOKENS:
                found.append(DecodePoint(streams, prompt_tokens, room))
    return found


def prefill_sizes(facts: EngineFacts, *, is_quick: bool) -> list[int]:
    """Prompts that one step takes whole."""
    most = min(facts.chunk_tokens, facts.context_tokens - 2, int(_POOL_SHARE * facts.pool_tokens))
    sizes = [size for size in _PREFILLS if size <= most]
    if is_quick:
        sizes = sorted({*sizes[:1], *sizes[len(sizes) // 2 : len(sizes) // 2 + 1], *sizes[-1:]})
    return sizes or [max(most, 1)]
