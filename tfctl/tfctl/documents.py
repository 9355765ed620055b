"""JSON documents that tfctl makes itself; those of the daemon are in `tokenflow.wire`."""

from typing import Any

import msgspec

from tokenflow.events import EventRow
from tokenflow.policy.states import RequestState
from tokenflow.tuning import Applies
from tokenflow.wire import Capacity, Document, EngineState, Latency, RequestsDocument, StatusDocument, Transfers


class ClientVersionDocument(Document, kw_only=True):
    """`tfctl --version --json`"""

    api: str
    python: str


class WaitDocument(Document, kw_only=True, rename={"for_": "for"}):
    """`tfctl wait --json`: the state was reached after `waited_s` seconds."""

    for_: str
    state: EngineState
    waited_s: float


class LogsDocument(Document, kw_only=True):
    """`tfctl logs --json`: oldest line first."""

    lines: list[str]


class LogLineDocument(Document, kw_only=True):
    """One line of `tfctl logs -f --json`."""

    line: str


class MetricsDocument(Document, kw_only=True):
    """`tfctl metrics --json`: Prometheus' text, and the file that it was written to."""

    text: str
    path: str | None


class EventsDocument(Document, kw_only=True):
    """`tfctl events --json`: oldest event first."""

    events: list[EventRow]


class EventDocument(Document, kw_only=True):
    """One line of `tfctl events -f --json`."""

    event: EventRow


class EngineSetDocument(Document, kw_only=True):
    """`tfctl engine show --json`: what of the engine is installed in this environment."""

    engine_set: dict[str, Any]


class ProfileSummary(msgspec.Struct, kw_only=True):
    """One profile file. `error` says what is wrong with it, if it cannot be read or, in a list, if it is invalid."""

    name: str
    origin: str
    path: str
    description: str | None = None
    error: str | None = None


class ProfilesDocument(Document, kw_only=True):
    """`tfctl profile list --json`"""

    profiles: list[ProfileSummary]


class ProfileDocument(Document, kw_only=True):
    """`tfctl profile show NAME --json`: the file's contents as they stand."""

    name: str
    origin: str
    path: str
    contents: dict[str, Any]


class ProfileFault(msgspec.Struct, kw_only=True):
    """One thing that is wrong with a profile. `line` null: it cannot be said where; `key` empty: the whole file."""

    line: int | None
    key: str
    message: str

    def text(self, source: str) -> str:
        """`SOURCE:LINE: key: what is wrong`"""
        place = source if self.line is None else f"{source}:{self.line}"
        return f"{place}: {self.key or 'file'}: {self.message}"


class CheckedProfile(msgspec.Struct, kw_only=True):
    """One profile with all of its faults. `profile`: its contents with every default; null where there are faults."""

    name: str
    path: str
    faults: list[ProfileFault]
    profile: dict[str, Any] | None = None


class ProfileCheckDocument(Document, kw_only=True):
    """`tfctl profile validate --json`"""

    profiles: list[CheckedProfile]


class ProfileChange(msgspec.Struct, kw_only=True):
    """One value that two profiles differ in; null: not set. `applies`: when an engine would work with the new one."""

    key: str
    old: Any
    new: Any
    applies: Applies


class ProfileDiffDocument(Document, kw_only=True):
    """`tfctl profile diff --json` and `apply --json`. `skipped`: tunables that settings or `--persist` hold."""

    old: str
    new: str
    changes: list[ProfileChange]
    skipped: list[str] = msgspec.field(default_factory=list)
    restarted: bool = False


class ProfileWrittenDocument(Document, kw_only=True):
    """`tfctl profile create --json` and `measure --json`: the file that was written, and its contents."""

    name: str
    origin: str
    path: str
    contents: dict[str, Any]


class TopDocument(Document, kw_only=True):
    """`tfctl top --once --json`: one frame of the live view."""

    status: StatusDocument
    requests: RequestsDocument


class MovingRequest(msgspec.Struct, kw_only=True):
    """A request whose KV is on its way between device and host."""

    rid: str
    state: RequestState
    kv_device_tokens: int | None
    kv_host_tokens: int | None


class TransfersDocument(Document, kw_only=True):
    """`tfctl transfers --json`: queues, what transfers took of late, and who moves."""

    transfers: Transfers
    latency: Latency
    moving: list[MovingRequest]


class CapacityDocument(Document, kw_only=True):
    """`tfctl capacity --json`. `effective_tok_s`: tokens made in time for their readers; null where not measured."""

    capacity: Capacity
    is_overloaded: bool
    raw_tok_s: float
    effective_tok_s: float | None


class Effect(msgspec.Struct, kw_only=True):
    """What the policy would have decided at the looks of a comparison, under one setting."""

    safe_mean: float  # running streams that could be paused without their readers noticing, on average
    pause_count: int  # pauses ordered; one that is ordered at several looks in a row counts once
    first_token_count: int  # of them for somebody's first token
    rescue_count: int  # of them for a paused stream about to run dry
    least_left_s: float | None  # least runway that a pause would have left after the way out and back; null: no pause
    dry_count: int  # pauses whose readers would have run dry on that way


class TuneComparisonDocument(Document, kw_only=True):
    """`tfctl tune --compare --json`: the values in force, and those asked for, over the same looks."""

    changes: dict[str, Any]
    span_s: float
    look_count: int
    before: Effect
    after: Effect
