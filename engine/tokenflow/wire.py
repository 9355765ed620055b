"""The documents that cross process borders on the operator's side: daemon → tfctl, view, scripts.

Field names, units and nulls are API (docs/api.md, docs/schemas). The engine's own link is in
`tokenflow.link`. No prompt or completion text is in any of them: ids, counts and times only.
"""

import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from tokenflow.policy.states import Mode, RateSource, Reason, RequestState, Variant
from tokenflow.version import __version__

API_VERSION = "1.0"
# What a daemon can do beyond the first 1.0, in the order in which it was added (docs/api.md). Clients ask for a name,
# never for a release; a name is not taken back within /v1.
EXTENSIONS = ("tunables", "hold", "events", "abort", "explain", "persist", "metrics", "roles", "adoption")


class EngineState(StrEnum):
    """What the engine is doing, as the daemon sees it."""

    STOPPED = "stopped"
    STARTING = "starting"
    SERVING = "serving"
    BUSY = "busy"  # alive, but one step has taken long: a large prefill
    DRAINING = "draining"
    WEDGED = "wedged"  # work is present and no step has completed within the limit
    FAILED = "failed"


class PluginState(StrEnum):
    """Whether our plugin is at work inside the engine."""

    ABSENT = "absent"  # not heard from (yet)
    ACTIVE = "active"
    INCOMPATIBLE = "incompatible"  # version or hook check failed: nothing is hooked, serving is unmodified
    DISABLED = "disabled"  # turned itself off after too many faults


class OperationState(StrEnum):
    """The life of a long action."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class AlarmKind(StrEnum):
    """What an operator should look at. Each has its page in docs/runbook.md and its rule for Prometheus."""

    ENGINE_FAILED = "engine_failed"
    ENGINE_RESTARTED = "engine_restarted"  # it failed, and the daemon has started it again
    ENGINE_WEDGED = "engine_wedged"
    TELEMETRY_STALE = "telemetry_stale"
    PLUGIN_ABSENT = "plugin_absent"
    PLUGIN_INCOMPATIBLE = "plugin_incompatible"
    PLUGIN_DISABLED = "plugin_disabled"
    PLUGIN_OTHER_VERSION = "plugin_other_version"  # daemon and plugin are of different link versions
    ENFORCE_BLOCKED = "enforce_blocked"
    SCHEDULERS_UNSEEN = "schedulers_unseen"  # of several only the first is watched: data-parallel attention, or hosts
    RANK_SKEW = "rank_skew"
    PREEMPTION_STORM = "preemption_storm"  # KV is full, and streams are taken out all the time
    THRASH = "thrash"  # a stream is moved again and again and makes next to nothing
    ZOMBIES = "zombies"  # tokens are made for clients that have left
    STARVATION = "starvation"  # a request has waited for more than twice the starvation bound
    HOST_POOL_FULL = "host_pool_full"
    METRICS_UNAVAILABLE = "metrics_unavailable"


class RequestRow(msgspec.Struct, kw_only=True, omit_defaults=False, rename={"class_": "class"}):
    """One request, as `tfctl ps` shows it. `unread_tokens` and `runway_s` are null where nobody reads along."""

    rid: str
    state: RequestState
    class_: str
    rate_tok_s: float | None
    rate_source: RateSource
    prompt_tokens: int
    generated_tokens: int
    delivered_tokens: int
    consumed_tokens: float
    unread_tokens: int | None
    runway_s: float | None
    required_runway_s: float | None = None
    preemptible: bool | None = None
    kv_device_tokens: int | None = None
    kv_host_tokens: int | None = None
    preemption_count: int = 0
    stall_s: float = 0.0
    stall_count: int = 0
    ttft_s: float | None = None
    age_s: float = 0.0
    reason: Reason | None = None
    parent_rid: str | None = None
    hidden_tokens: int = 0  # reasoning that no reader is shown; not among the generated ones


class Capacity(msgspec.Struct, kw_only=True):
    """Capacity Γ against the summed rates. Null where it has not been measured yet."""

    capacity_tok_s: float | None = None
    demand_tok_s: float = 0.0
    headroom_ratio: float | None = None
    running_count: int = 0
    waiting_count: int = 0
    preempted_count: int = 0
    saturation_forecast_s: float | None = None
    waiting_age_s: float | None = None  # of the request that has waited longest; null: nobody waits
    preempted_age_s: float | None = None  # of the longest pause, those by an operator's hand apart; null: none


class TransferQueue(msgspec.Struct, kw_only=True):
    """One direction between device and host KV pools."""

    queue_count: int = 0
    queue_bytes: int = 0
    bandwidth_bytes_s: float | None = None
    total_bytes: int = 0


class Transfers(msgspec.Struct, kw_only=True):
    d2h: TransferQueue = msgspec.field(default_factory=TransferQueue)
    h2d: TransferQueue = msgspec.field(default_factory=TransferQueue)


class Tail(msgspec.Struct, kw_only=True):
    """A distribution of service times over the sliding window."""

    p50: float | None = None
    p99: float | None = None
    count: int = 0


class Latency(msgspec.Struct, kw_only=True):
    evict_s: Tail = msgspec.field(default_factory=Tail)
    load_s: Tail = msgspec.field(default_factory=Tail)
    schedule_s: Tail = msgspec.field(default_factory=Tail)
    recompute_s_per_token: float | None = None
    front_end_s: Tail = msgspec.field(default_factory=Tail)  # first token: made by the scheduler → sent to the client
    delivery_s: Tail = msgspec.field(default_factory=Tail)  # first token: the send itself, until the socket took it


class Quality(msgspec.Struct, kw_only=True):
    """What readers experienced since the engine started (totals) and lately (tails, rates)."""

    ttft_s: Tail = msgspec.field(default_factory=Tail)
    stall_s_total: float = 0.0
    effective_tok_s: float | None = None
    raw_tok_s: float = 0.0
    preemption_total: int = 0
    zombie_tokens_total: int = 0  # made after their client had left


class DaemonInfo(msgspec.Struct, kw_only=True):
    version: str
    api: str
    pid: int
    uptime_s: float
    socket: str
    metrics_url: str | None = None  # where Prometheus may scrape; null: nowhere
    on_demand: bool = False  # brought up by `tfctl start`: it ends when its engine is stopped


class EngineInfo(msgspec.Struct, kw_only=True):
    state: EngineState
    reason: str | None = None  # why it failed, what blocks it; one line for people
    progress: str | None = None  # what it is doing while it starts
    progress_ratio: float | None = None
    url: str | None = None
    pid: int | None = None
    version: str | None = None
    plugin: PluginState = PluginState.ABSENT
    plugin_detail: str | None = None
    model: str | None = None
    profile: str | None = None
    adopted: bool = False
    uptime_s: float | None = None
    step_count: int | None = None
    step_age_s: float | None = None
    log: str | None = None


class LeftoverEngine(msgspec.Struct, kw_only=True):
    """An engine whose daemon has ended. `pid`: its main process, or what is left where that has ended.

    `state`: the last that its daemon knew; `failed` where the main process is gone.
    """

    pid: int
    profile: str
    state: EngineState = EngineState.FAILED


class PolicyInfo(msgspec.Struct, kw_only=True):
    mode: Mode | None = None
    variant: Variant | None = None
    overload: bool = False
    revision: int = 0
    blocked_by: list[str] = msgspec.field(default_factory=list)  # engine options that rule `enforce` out
    fault_count: int = 0


class Alarm(msgspec.Struct, kw_only=True):
    kind: str  # an `AlarmKind`; a newer daemon may raise others
    message: str
    hint: str | None = None


class ThrottleReason(StrEnum):
    """What keeps a GPU from its full clock."""

    POWER_CAP = "power_cap"  # the power limit that the driver enforces
    THERMAL = "thermal"  # too hot, by the driver's or the hardware's judgement
    POWER_BRAKE = "power_brake"  # the board's or the chassis' power supply asks for it
    HW_SLOWDOWN = "hw_slowdown"  # the hardware has lowered the clock, for one of its reasons


class GpuInfo(msgspec.Struct, kw_only=True):
    """One GPU of the host, as NVML tells. Null: this GPU or its driver does not say."""

    index: int
    name: str | None = None
    uuid: str | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilization_ratio: float | None = None  # share of the time in which a kernel ran
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    pcie_rx_bytes_s: float | None = None  # from the host
    pcie_tx_bytes_s: float | None = None  # to the host
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    ecc_corrected_count: int | None = None  # since the driver was loaded
    ecc_uncorrected_count: int | None = None
    throttle_reasons: list[str] | None = None


class Document(msgspec.Struct, kw_only=True):
    """What every JSON document begins with. `schema` is set by `stamp`."""

    schema: str = ""
    version: str = __version__
    commit: str | None = None
    profile: str | None = None
    seed: int | None = None
    generated_at: str = ""


DocumentT = TypeVar("DocumentT", bound=Document)


def schema_name(kind: type[Document]) -> str:
    """`StatusDocument` → `tokenflow.status/1`."""
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__.removesuffix("Document"))
    return f"tokenflow.{words.lower()}/1"


def stamp(document: DocumentT) -> DocumentT:
    """Fills in `schema` and `generated_at` (RFC 3339, UTC) just before a document is sent or printed."""
    document.schema = schema_name(type(document))
    document.generated_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return document


class StatusDocument(Document, kw_only=True):
    daemon: DaemonInfo | None
    engine: EngineInfo
    policy: PolicyInfo
    capacity: Capacity
    transfers: Transfers
    latency: Latency
    quality: Quality
    gpus: list[GpuInfo] = msgspec.field(default_factory=list)
    alarms: list[Alarm] = msgspec.field(default_factory=list)


class RequestsDocument(Document, kw_only=True):
    requests: list[RequestRow]
    total_count: int  # before `--limit`


class ModeDocument(Document, kw_only=True):
    mode: Mode | None
    revision: int


class VersionDocument(Document, kw_only=True):
    api: str
    daemon: str
    engine: str | None
    extensions: list[str]


class OperationDocument(Document, kw_only=True):
    """A long action (`start`, `stop`, `restart`) with its progress. Read it again until `state` is not `running`."""

    id: str
    kind: str
    state: OperationState
    progress: str | None = None
    progress_ratio: float | None = None
    started_by: str | None = None  # "uid=1000 pid=4711"
    started_at: str
    finished_at: str | None = None
    error: "ErrorBody | None" = None
    result: dict[str, Any] | None = None


class ErrorBody(msgspec.Struct, kw_only=True):
    """The one error shape. `hint` names the next command."""

    code: str
    message: str
    hint: str | None = None
    field: str | None = None


class ErrorDocument(Document, kw_only=True):
    error: ErrorBody


class StartRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/engine/start"""

    profile: str | None = None
    engine_args: list[str] = msgspec.field(default_factory=list)


class StopRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/engine/stop. `drain_s` None takes the daemon's default."""

    drain_s: float | None = None
    daemon: bool = False


class RestartRequest(StopRequest, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/engine/restart. `profile` None keeps the profile and the engine arguments that ran."""

    profile: str | None = None
    engine_args: list[str] = msgspec.field(default_factory=list)


class ModeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """PUT /v1/mode"""

    mode: Mode
