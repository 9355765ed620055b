"""Small stand-ins for SGLang's request and scheduler objects, with the attributes that the tracker reads."""

import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

from tokenflow.policy.states import Mode
from tokenflow.policy.tunables import Tunables
from tokenflow.sglang.event_log import EventLog
from tokenflow.sglang.snapshot import SnapshotBuilder
from tokenflow.sglang.tracker import RequestTracker
from tokenflow.wire import Capacity, Latency, Transfers


@dataclass(eq=False)
class FakeReq:
    rid: str
    prompt_tokens: int = 5
    output_ids: list[int] = field(default_factory=list)
    finished_reason: object | None = None
    retraction_count: int = 0
    custom_params: dict[str, Any] | None = None
    reasoning_tokens: int = 0

    def __post_init__(self) -> None:
        self.origin_input_ids = [0] * self.prompt_tokens
        self.sampling_params = SimpleNamespace(custom_params=self.custom_params)
        self.sampling_params.max_new_tokens = 100
        self.kv = SimpleNamespace(kv_committed_len=7, holds_kv=True, cache_protected_len=0)
        self.time_stats = SimpleNamespace(set_wait_queue_entry_time=lambda: None)
        self.arrival_processed_tokens = 0
        self.last_node: int | None = None
        self.full_untruncated_fill_ids: list[int] = []
        for name in (
            "to_finish",
            "input_embeds",
            "session",
            "beam_group",
            "multimodal_inputs",
            "extra_key",
            "cache_salt",
        ):
            setattr(self, name, None)
        self.skip_radix_cache_insert = self.return_logprob = False
        self.return_hidden_states = self.return_routed_experts = self.return_indexer_topk = False
        self.send_token_offset = len(self.output_ids)

        self.prefix_len = self.host_loaded_length = 0

    def materialized_host_hit_len(self) -> int:
        return self.host_loaded_length

    def refresh_fill_ids(self) -> None:
        self.full_untruncated_fill_ids = self.origin_input_ids + self.output_ids

    def finished(self) -> bool:
        return self.finished_reason is not None

    def reset_for_retract(self) -> None:
        self.last_node = None
        self.retraction_count += 1

    def owned_kv_len(self) -> int:
        return self.kv.kv_committed_len

    def make(self, token_count: int) -> None:
        self.output_ids.extend([1] * token_count)
        self.send_token_offset = len(self.output_ids)


class FINISH_LENGTH:
    pass


class FINISH_ABORT:
    pass


class FakeBatch:
    """A batch whose requests can be taken out, as SGLang's `release_req` and `filter_batch` do."""

    def __init__(self, reqs: list[FakeReq]) -> None:
        self.reqs = reqs
        self.batch_is_full = True

    def release_req(self, index: int, remaining: int) -> bool:
        self.reqs[index].kv.holds_kv = False
        self.reqs[index].reset_for_retract()
        return True

    def filter_batch(self, keep_indices: list[int]) -> None:
        self.reqs = [self.reqs[index] for index in keep_indices]


class FakeTree:
    """A radix tree that only counts what is asked of it."""

    def __init__(self) -> None:
        self.checkpoints: list[tuple[str, int]] = []
        self.flush_count = 0

    def checkpoint(self, req: FakeReq, *, up_to: int) -> None:
        self.checkpoints.append((req.rid, up_to))
        req.kv.cache_protected_len = up_to

    def flush_pending_backups(self) -> None:
        self.flush_count += 1

    def evictable_size(self) -> int:
        return 0

    def protected_size(self) -> int:
        return 0


def batch_of(*reqs: FakeReq) -> Any:
    return FakeBatch(list(reqs))


def scheduler_with(waiting: list[FakeReq] = [], running: list[FakeReq] = [], slots: int = 4) -> Any:  # noqa: B006
    pool = SimpleNamespace(get_kv_size_bytes=lambda: (50_000, 50_000), size=999, page_size=1)
    return SimpleNamespace(
        waiting_queue=list(waiting),
        running_batch=batch_of(*running),
        last_batch=None,
        chunked_req=None,
        max_running_requests=slots,
        is_mixed_chunk=False,
        max_total_num_tokens=1000,
        page_size=1,
        processed_tokens_counter=0,
        enable_overlap=True,
        _engine_paused=False,
        idle_sleeper=None,
        tree_cache=FakeTree(),
        token_to_kv_pool_allocator=SimpleNamespace(available_size=lambda: 900, get_kvcache=lambda: pool),
        is_fully_idle=lambda ignore_waiting=False: not running and (ignore_waiting or not waiting),
    )


class FakeGovernor:
    """In place of the governor, where only the observer is looked at: it decides nothing."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.tracker = RequestTracker()
        self.builder = SnapshotBuilder(self.tracker)
        self.blockers: list[str] = []
        self.events = EventLog()
        self.tunables = Tunables()
        self.only_held_wait = False
        self.revision = 0
        self.driver = SimpleNamespace(
            capacity_tok_s=40.0,
            is_overloaded=False,
            latency=Latency,
            kv=SimpleNamespace(transfers=Transfers, pools=lambda: (1000, 900, 0, 2000, 1990, 0)),
        )

    @property
    def mode(self) -> Mode:
        return self.tunables.mode

    @property
    def is_enforcing(self) -> bool:
        return self.mode is Mode.ENFORCE

    def apply(self, tunables: Tunables, who: str | None = None, reason: str | None = None) -> None:
        self.revision += tunables != self.tunables
        self.tunables = tunables

    def on_step(self, batch: Any, now_s: float) -> None:
        pass

    def explain(self, now_s: float) -> None:
        pass

    def reconcile(self, now_s: float) -> Capacity:
        return self.builder.reconcile(self.scheduler, now_s)

    def end_turn(self) -> None:
        pass

    def note_resumed(self, now_s: float) -> None:
        pass

    def note_released(self) -> None:
        pass


def put_schedule_policy(monkeypatch) -> ModuleType:
    """The one module of SGLang whose constant is lowered while admitting, where SGLang itself is not imported."""
    module = ModuleType("sglang.srt.managers.schedule_policy")
    module.CLIP_MAX_NEW_TOKENS = 4096
    managers = ModuleType("sglang.srt.managers")
    managers.schedule_policy = module
    for name, made in (
        ("sglang", ModuleType("sglang")),
        ("sglang.srt", ModuleType("sglang.srt")),
        ("sglang.srt.managers", managers),
        ("sglang.srt.managers.schedule_policy", module),
    ):
        monkeypatch.setitem(sys.modules, name, made)
    return module
