"""The documents of `tfctl tune`, `pause`, `resume`, `abort` and `explain` (the others are in `tokenflow.wire`)."""

from enum import StrEnum
from typing import Any

import msgspec

from tokenflow.policy.states import RequestState
from tokenflow.wire import Document

ALL_KEYS = "*"  # in `TuneRequest.reset`


class Origin(StrEnum):
    """Where a tunable's value comes from, weakest first."""

    DEFAULT = "default"
    PROFILE = "profile"
    FILE = "file"  # [tunables] of a tokenflow.toml
    ENVIRONMENT = "environment"  # TOKENFLOW_*
    PERSISTED = "persisted"  # tuned with --persist
    TUNED = "tuned"  # until the engine stops


class Applies(StrEnum):
    """When a change is in force."""

    LIVE = "live"  # at once
    DRAIN = "drain"  # for streams that begin afterwards; for all once those of now have ended
    RESTART = "restart"  # when the engine starts anew


class TunableRow(msgspec.Struct, kw_only=True):
    """One tunable. `value` is read back from the engine; null where none serves.

    `minimum` and `maximum` are null where there are `choices`. `source` is the file, variable or profile that `origin`
    stands for, null where there is none. `persisted` is what the next engine will start with; null: none was persisted.
    """

    key: str
    value: Any
    default: Any
    minimum: float | None
    maximum: float | None
    choices: list[str]
    origin: Origin | None
    text: str
    source: str | None = None
    persisted: Any = None
    applies: Applies = Applies.LIVE


class TunablesDocument(Document, kw_only=True):
    """GET and PATCH /v1/tunables. `revision` counts changes since the engine's start; with `dry_run` nothing was
    changed, and the values are those that would have come of it."""

    revision: int
    tunables: list[TunableRow]
    dry_run: bool = False


class TuneRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """PATCH /v1/tunables: all of `changes` and `reset`, or none. `if_revision`: only if nobody has changed anything
    since. `persist`: the changes outlive the engine, and are possible without one. `reset`: these keys go back to what
    profile and host say, and what was persisted of them is forgotten; `["*"]` is all of them."""

    changes: dict[str, Any] = {}
    if_revision: int | None = None
    dry_run: bool = False
    persist: bool = False
    reset: list[str] = []


class HoldDocument(Document, kw_only=True):
    """POST /v1/requests/{rid}/pause and resume. `state` is that of the moment in which the engine took the command."""

    rid: str
    is_held: bool
    state: RequestState


class AbortDocument(Document, kw_only=True):
    """POST /v1/requests/{rid}/abort. `state` is that of the moment in which it was asked for."""

    rid: str
    state: RequestState


class ExplainDocument(Document, kw_only=True):
    """GET /v1/requests/{rid}/explain: the safety condition with every number in it. `rid` is null where numbers were
    given. Terms that the policy does not know are null."""

    rid: str | None
    state: str | None
    reason: str | None
    runway_s: float | None
    required_runway_s: float | None
    required_tokens: int | None
    preemptible: bool
    terms: dict[str, Any]
