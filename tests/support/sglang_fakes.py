"""Small stand-ins for SGLang's request and scheduler objects, with the attributes that the tracker reads."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass(eq=False)
class FakeReq:
    rid: str
    prompt_tokens: int = 5
    output_ids: list[int] = field(default_factory=list)
    finished_reason: object | None = None
    retraction_count: int = 0
    custom_params: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.origin_input_ids = [0] * self.prompt_tokens
        self.sampling_params = SimpleNamespace(custom_params=self.custom_params)
        self.kv = SimpleNamespace(kv_committed_len=7, holds_kv=True)

    def make(self, token_count: int) -> None:
        self.output_ids.extend([1] * token_count)


class FINISH_LENGTH:
    pass


class FINISH_ABORT:
    pass


def batch_of(*reqs: FakeReq) -> Any:
    return SimpleNamespace(reqs=list(reqs))


def scheduler_with(waiting: list[FakeReq] = [], running: list[FakeReq] = [], slots: int = 4) -> Any:  # noqa: B006
    return SimpleNamespace(
        waiting_queue=list(waiting),
        running_batch=batch_of(*running),
        last_batch=None,
        chunked_req=None,
        max_running_requests=slots,
        idle_sleeper=None,
        tree_cache=None,
        is_fully_idle=lambda: not waiting and not running,
    )
