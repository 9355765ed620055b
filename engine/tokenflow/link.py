"""The messages on the engine's link: plugin ↔ daemon, and the HTTP process → scheduler.

ZeroMQ over UNIX sockets in one private folder (0700), named by `TOKENFLOW_LINK` in the engine's environment:

* `telemetry.sock`  PUB bound by the scheduler of rank 0; the daemon subscribes. A slow or absent daemon costs nothing.
* `scheduler.sock`  ROUTER bound by the scheduler of rank 0; answers `Command`s.
* `frontend.sock`   ROUTER bound by the HTTP process; answers `Command`s.
* `delivery.sock`   PULL bound by the scheduler of rank 0; the HTTP process pushes `DeliveryBatch`es.

With `--dp-size N` there are N schedulers, each with its own requests and a rank 0. Each binds its own three sockets:
those of the first are named as above, those of the others `telemetry-1.sock` and so on (`own_socket`).

Whoever reads takes what it knows: unknown fields are ignored and missing ones have their defaults, so that daemon and
plugin of different versions get on. `LINK_VERSION` counts what was added, and `missing_in` says what an
older plugin lacks.

Bodies are MessagePack. Stamps are seconds of CLOCK_MONOTONIC, which all processes of one host share.
"""

from pathlib import Path
from typing import Any

import msgspec

from tokenflow.counters import Counters
from tokenflow.errors import from_body
from tokenflow.events import Event
from tokenflow.policy.buffer import VirtualBuffer
from tokenflow.policy.states import Mode, RateSource, Reason, RequestState, Variant
from tokenflow.wire import Capacity, ErrorBody, Latency, PluginState, Quality, Transfers

LINK_VERSION = 3
_ADDED = {
    2: "the fill of the host pool and its alarm; metrics by class; tfctl abort; tfctl explain of a live request",
    3: "every scheduler of an engine with --dp-size",
}
LINK_ENV = "TOKENFLOW_LINK"

TELEMETRY_SOCKET = "telemetry.sock"
SCHEDULER_SOCKET = "scheduler.sock"
FRONTEND_SOCKET = "frontend.sock"
DELIVERY_SOCKET = "delivery.sock"

MAX_EVENTS = 256  # in one telemetry message
TELEMETRY_QUEUE_COUNT = 32  # messages that wait for a slow daemon; newer ones are dropped then


class StreamState(msgspec.Struct, array_like=True):
    """One request as the tracker holds it, sent as it is: making rows of it is the reader's work, not the scheduler's.

    Stamps are CLOCK_MONOTONIC seconds. The buffer has been advanced to some moment before `Telemetry.sent_s`.
    """

    rid: str
    parent_rid: str | None
    class_name: str
    rate_source: RateSource
    prompt_tokens: int
    arrival_s: float
    buffer: VirtualBuffer
    state: RequestState = RequestState.WAITING
    reason: Reason | None = None
    first_token_s: float | None = None
    ended_s: float | None = None
    preemption_count: int = 0
    kv_device_tokens: int = 0
    kv_host_tokens: int | None = None
    required_runway_s: float | None = None
    preemptible: bool | None = None
    is_met_midway: bool = False  # first seen after its first token (the mode was off): its TTFT is not known

    @property
    def ttft_s(self) -> float | None:
        """Arrival to the first delivery; to the first token made where nothing is delivered piecemeal."""
        if self.is_met_midway:
            return None
        has_pieces = self.buffer.rate_tok_s is not None
        first_s = self.buffer.first_delivery_s if has_pieces else self.first_token_s
        return None if first_s is None else max(0.0, first_s - self.arrival_s)


class KvPools(msgspec.Struct, array_like=True):
    """Tokens in the device and host pools of KV. `host_only_tokens`: copies that may be evicted, a lower bound."""

    device_total_tokens: int
    device_unused_tokens: int
    device_cached_tokens: int
    host_total_tokens: int
    host_unused_tokens: int
    host_only_tokens: int


class Telemetry(msgspec.Struct, kw_only=True):
    """The scheduler's state, about ten times a second while it works and at least once a second when idle."""

    link_version: int = LINK_VERSION
    plugin_version: str
    engine_version: str
    pid: int
    sequence: int
    sent_s: float
    step_count: int
    last_step_s: float | None  # when the last step was processed
    has_work: bool
    mode: Mode
    variant: Variant
    overload: bool
    revision: int
    fault_count: int
    plugin_spent_s: float = 0.0  # seconds that our hooks have taken on the scheduler's thread since its start
    plugin: PluginState
    plugin_detail: str | None = None  # the scheduler's last fault
    blocked_by: list[str]
    capacity: Capacity
    transfers: Transfers
    latency: Latency
    quality: Quality  # `stall_s_total` counts ended requests only: `tokenflow.rows` adds the live ones
    streams: list[StreamState]  # every live request, and those that have ended in the last few seconds
    disconnect_counts: dict[str, int] = {}  # clients that left early, by phase: `first_token` or `stream`
    counters: Counters | None = None  # None: an older plugin, which counts less
    events: list[Event] = []  # since the last message, at most `MAX_EVENTS`; the rest comes with the next ones
    kv_pools: KvPools | None = None  # link version 2
    scheduler_count: int = 1  # of the engine, each with requests of its own
    watched_count: int = 1  # so many of them have a link
    scheduler_index: int = 0  # which of them this is


class Delivery(msgspec.Struct, array_like=True):
    """What the HTTP process has handed to one stream's client, as a running total."""

    rid: str
    delivered_tokens: int
    stamp_s: float
    is_closed: bool = False  # the response is complete, or its client is gone
    is_disconnect: bool = False  # the client left before the response was complete
    is_blocked: bool = False  # the client does not drain what it is sent
    sent_s: float | None = None  # when the send began that was done at `stamp_s`


class ReaderClass(msgspec.Struct, array_like=True):
    """The class that a stream's client has changed to; rates are those of the profile. None: nobody reads along."""

    name: str
    rate_tok_s: float | None
    max_rate_tok_s: float | None = None


class Ack(msgspec.Struct, array_like=True):
    """What the client of one stream says to have read, as a running total, checked and bounded by the HTTP process."""

    rid: str
    consumed_tokens: int
    stamp_s: float
    rate_tok_s: float | None = None  # reads so fast from now on
    reader_class: ReaderClass | None = None


class DeliveryBatch(msgspec.Struct, array_like=True):
    """Of one stream at most one delivery and one ack: the newest. Deliveries come first."""

    deliveries: list[Delivery]
    acks: list[Ack] = []


class Ping(msgspec.Struct, tag="ping", kw_only=True):
    """Asks a process who it is and how it is."""


class SetMode(msgspec.Struct, tag="set_mode", kw_only=True):
    """To the scheduler. `enforce` is answered with `unsupported` where an option of the engine rules it out.

    After `deadline_s` (CLOCK_MONOTONIC) it is not carried out any more: whoever sent it has reported a failure.
    """

    mode: Mode
    deadline_s: float | None = None
    who: str | None = None


class PauseRequest(msgspec.Struct, tag="pause_request", kw_only=True):
    """To the scheduler: an operator holds a request. A running one is paused, a waiting one is not started.

    Refused with `unsupported` unless enforcing or where the request cannot come back without loss, with `not_found`,
    and with `conflict` where it has ended. Holding it once more changes nothing.
    """

    rid: str
    deadline_s: float | None = None
    who: str | None = None


class ResumeRequest(msgspec.Struct, tag="resume_request", kw_only=True):
    """To the scheduler: the policy may start it again. Refused with `conflict` where no operator holds it."""

    rid: str
    deadline_s: float | None = None
    who: str | None = None


class Tune(msgspec.Struct, tag="tune", kw_only=True):
    """To the scheduler: all of `changes` are put in force, or none. `usage`: the values were refused, all problems in
    the message; `revision_mismatch`: somebody has changed something since `if_revision`."""

    changes: dict[str, Any]
    if_revision: int | None = None
    dry_run: bool = False
    deadline_s: float | None = None
    who: str | None = None


class ShowStream(msgspec.Struct, tag="show_stream", kw_only=True):
    """To the scheduler: the state of one request, live or just ended. Refused with `not_found`."""

    rid: str


class ExplainStream(msgspec.Struct, tag="explain_stream", kw_only=True):
    """To the scheduler: every term of the policy's last decision about one live request. Refused with `not_found`,
    with `conflict` where it has ended or the policy has not seen it yet, and with `unsupported` in mode `off`."""

    rid: str


class AbortStream(msgspec.Struct, tag="abort_stream", kw_only=True):
    """To the HTTP process: ends one request by its exact id. Refused with `not_found` where it is not open there."""

    rid: str


class CloseAdmission(msgspec.Struct, tag="close_admission", kw_only=True):
    """To the HTTP process: new generation requests get 503 from now on; `reopen` undoes it."""

    reopen: bool = False


class CutStreams(msgspec.Struct, tag="cut_streams", kw_only=True):
    """To the HTTP process: end every open response now; streams get an error event with `message`."""

    message: str


Command = (
    Ping
    | SetMode
    | PauseRequest
    | ResumeRequest
    | Tune
    | ShowStream
    | ExplainStream
    | AbortStream
    | CloseAdmission
    | CutStreams
)


class Reply(msgspec.Struct, kw_only=True):
    """The answer to any command; `error_code` is None on success."""

    link_version: int = LINK_VERSION
    plugin_version: str
    pid: int
    plugin: PluginState
    plugin_detail: str | None = None
    engine_version: str | None = None
    is_ready: bool | None = None  # HTTP process only: SGLang's own warm-up is over
    open_stream_count: int | None = None  # HTTP process only: generation responses not yet complete
    mode: Mode | None = None
    revision: int = 0
    tunables: dict[str, Any] | None = None  # scheduler only: all that are in force (or would be: a dry run)
    tuned_keys: list[str] = []  # those whose value is not the one that the engine was started with
    held_state: RequestState | None = None  # of the request that was paused or resumed
    stream: StreamState | None = None  # that was asked for
    explanation: dict[str, Any] | None = None  # the fields of `tokenflow.policy.explanation.Explanation`
    error_code: str | None = None
    error_message: str | None = None
    error_hint: str | None = None
    error_field: str | None = None


def own_socket(name: str, scheduler_index: int) -> str:
    """The name of one scheduler's TELEMETRY_SOCKET, SCHEDULER_SOCKET or DELIVERY_SOCKET."""
    return f"{name.removesuffix('.sock')}-{scheduler_index}.sock" if scheduler_index else name


def bound_sockets(folder: Path, name: str) -> dict[int, Path]:
    """Those that are there now, by scheduler. SGLang may say that it is ready a moment before the last is bound."""
    stem = name.removesuffix(".sock")
    found: dict[int, Path] = {}
    for path in folder.glob(f"{stem}*.sock"):
        number = path.name.removeprefix(stem).removesuffix(".sock")
        if path.name == name or number.removeprefix("-").isdecimal():
            found[int(number.removeprefix("-") or 0)] = path
    return dict(sorted(found.items()))


def missing_in(version: int) -> list[str]:
    """What a plugin of that link version lacks, in words; empty for the current and for a newer one."""
    return [text for since, text in sorted(_ADDED.items()) if since > version]


def encode(message: msgspec.Struct) -> bytes:
    """MessagePack bytes of any message of this module."""
    return msgspec.msgpack.encode(message)


def decode_command(body: bytes) -> Command:
    """Raises msgspec.ValidationError or msgspec.DecodeError on anything that is not a command."""
    return msgspec.msgpack.decode(body, type=Command)


def decode_reply(body: bytes) -> Reply:
    return msgspec.msgpack.decode(body, type=Reply)


def decode_telemetry(body: bytes) -> Telemetry:
    return msgspec.msgpack.decode(body, type=Telemetry)


def decode_deliveries(body: bytes) -> DeliveryBatch:
    return msgspec.msgpack.decode(body, type=DeliveryBatch)


def checked(reply: Reply, hint: str = "tfctl status") -> Reply:
    """Raises what the command was refused with; `hint` is for refusals that come without one."""
    if reply.error_code is None:
        return reply
    raise from_body(
        ErrorBody(
            code=reply.error_code,
            message=reply.error_message or "the engine refused the command",
            hint=reply.error_hint or hint,
            field=reply.error_field,
        )
    )
