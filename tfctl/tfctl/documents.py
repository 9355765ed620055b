"""JSON documents that tfctl makes itself; those of the daemon are in `tokenflow.wire`."""

from typing import Any

import msgspec

from tokenflow.events import EventRow
from tokenflow.policy.states import RequestState
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
