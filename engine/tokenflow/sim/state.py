"""What the parts of the simulated engine share."""

from dataclasses import dataclass, field

from tokenflow.sim.memory import Memory
from tokenflow.sim.performance import Link, PerformanceModel
from tokenflow.sim.scheduler import StepRules
from tokenflow.sim.settings import EngineSettings
from tokenflow.sim.streams import Stream, Streams
from tokenflow.sim.token_times import DecodeTimes
from tokenflow.sim.transfers import Transfers


@dataclass(slots=True)
class SwitchCounts:
    """What the engine has done about pauses, of all requests."""

    pause_count: int = 0
    forced_count: int = 0  # of those: taken out by the engine because the pool was full
    load_count: int = 0
    recompute_count: int = 0  # resumes that computed KV again that there had been
    recomputed_tokens: int = 0


@dataclass(slots=True)
class EngineState:
    """Live requests, memory, transfers and the clock. `filling` are the streams that hold a slot and do not decode
    yet, in the order of their starts; `pool_queue` those of them whose prompts a second GPU computes."""

    settings: EngineSettings
    rules: StepRules
    performance: PerformanceModel
    link: Link
    memory: Memory
    transfers: Transfers
    streams: Streams = field(default_factory=Streams)
    decode_times: DecodeTimes = field(default_factory=DecodeTimes)
    filling: list[Stream] = field(default_factory=list)
    pool_queue: list[Stream] = field(default_factory=list)
    counts: SwitchCounts = field(default_factory=SwitchCounts)
    now_s: float = 0.0
    batch_version: int = 0  # counts changes of who decodes
    must_decide: bool = True
    has_just_mixed: bool = False  # those who run decoded in the last step, beside prefill, and cannot be paused now

    @property
    def holder_count(self) -> int:
        """Streams that hold a slot."""
        state = self.streams.column("state")
        return int(((state >= 2) & (state <= 4)).sum())

    def ask(self) -> None:
        """Something has happened that the scheduler should hear of."""
        self.must_decide = True

    def changed_batch(self) -> None:
        """Somebody began or ceased to decode: the next decision is due."""
        self.batch_version += 1
        self.must_decide = True
