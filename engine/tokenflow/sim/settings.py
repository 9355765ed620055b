"""The simulated engine's size and habits."""

from dataclasses import dataclass
from enum import StrEnum


class LoadOverlap(StrEnum):
    """What goes on while KV comes back from the host."""

    LAYERS = "layers"  # the step that resumes waits for it layer by layer (SGLang's HiCache, the live engine)
    AHEAD = "ahead"  # others decode meanwhile, whoever loads joins when it is there (the paper's overlap)
    NONE = "none"  # nothing: the GPU waits for every copy, in both directions


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Slots are places in the running batch; `step_overhead_s` is the scheduler's time in each step."""

    slot_count: int
    kv_tokens: int
    host_tokens: int = 0
    page_tokens: int = 1
    step_overhead_s: float = 0.0
    load_overlap: LoadOverlap = LoadOverlap.LAYERS

    def __post_init__(self) -> None:
        assert self.slot_count >= 1
        assert self.kv_tokens >= 1
        assert self.host_tokens >= 0
        assert self.page_tokens >= 1
