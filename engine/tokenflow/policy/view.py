"""What a decision is made on: one row a request in NumPy columns, and the engine's own figures.

The engine and the simulator keep a `RequestTable` (tokenflow.policy.table) and take a `View` of it for each
decision; nothing is copied. Whoever has a handful of rows builds one with `View.from_rows`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.carry import Carry
from tokenflow.policy.costs import Costs
from tokenflow.policy.states import RequestState

FloatColumn = NDArray[np.float64]
IntColumn = NDArray[np.int64]
BoolColumn = NDArray[np.bool_]
StateColumn = NDArray[np.int8]


class StateCode(IntEnum):
    """RequestState as the number that stands in the `state` column. The order is used: seekers are the least two."""

    WAITING = 0
    PREEMPTED = 1
    RUNNING = 2
    PREFILLING = 3
    LOADING = 4
    OFFLOADING = 5
    FINISHED = 6
    ABORTED = 7

    @classmethod
    def of(cls, state: RequestState) -> "StateCode":
        return cls[state.name]

    @property
    def state(self) -> RequestState:
        return RequestState[self.name]


# The same as plain numbers: comparing an array with an enum member costs more than the comparison.
WAITING: Final = 0
PREEMPTED: Final = 1
RUNNING: Final = 2
PREFILLING: Final = 3
LOADING: Final = 4
FINISHED: Final = 6
assert tuple(StateCode)[:4] == (WAITING, PREEMPTED, RUNNING, PREFILLING)
assert (LOADING, FINISHED) == (StateCode.LOADING, StateCode.FINISHED)


@dataclass(slots=True)
class RequestView:
    """One request, as a row. Times are seconds on the view's clock; tokens are counts.

    A row holds a slot while it is running, prefilling or loading. `since_s` is when it entered its state: for a
    waiting request its arrival, for a paused one its pause, for a running one the start of this run.
    """

    rid: str
    state: RequestState = RequestState.WAITING
    serial: int = -1  # order of registration, breaks ties of arrival; -1 takes the row's place
    arrival_s: float = 0.0
    since_s: float | None = None  # None takes arrival_s
    rate_tok_s: float = float("nan")  # NaN: nobody reads along (batch; an agent before its first ack)
    unread_tokens: float = 0.0
    dry_s: float = 0.0  # length of the present stall
    is_started: bool = False  # its first visible token was made
    run_tokens: float = 0.0  # tokens made in this run, hidden ones too
    is_first_run: bool = True
    context_tokens: float = 0.0  # KV needed on the device to run
    remaining_tokens: float = 1e9  # tokens to come at most
    length_tokens: float = 1e9  # max_tokens
    kv_device_tokens: float = 0.0  # for a waiting request: its prefix, where a live request holds it there
    kv_host_tokens: float = 0.0
    kv_both_tokens: float = 0.0
    kv_shared_tokens: float = 0.0  # of the device's: also held by another request, so not freed with this one
    may_pause: bool = True  # False: never a victim (embeddings as input, sessions, finishing, ...)
    is_held: bool = False  # paused by an operator until told otherwise


COLUMN_TYPES: dict[str, type[Any]] = {
    "serial": np.int64,
    "arrival_s": np.float64,
    "since_s": np.float64,
    "rate_tok_s": np.float64,
    "unread_tokens": np.float64,
    "dry_s": np.float64,
    "is_started": np.bool_,
    "run_tokens": np.float64,
    "is_first_run": np.bool_,
    "context_tokens": np.float64,
    "remaining_tokens": np.float64,
    "length_tokens": np.float64,
    "kv_device_tokens": np.float64,
    "kv_host_tokens": np.float64,
    "kv_both_tokens": np.float64,
    "kv_shared_tokens": np.float64,
    "may_pause": np.bool_,
    "is_held": np.bool_,
}


@dataclass(frozen=True, slots=True)
class EngineView:
    """The engine's own figures at the moment of the decision.

    `kv_free_tokens` can be handed out at once: unused, or cache that no live request needs. Copies on the device
    of paused streams are not in it (their rows say where their KV is).
    """

    now_s: float
    slot_count: int
    slots_free: int
    kv_total_tokens: float
    kv_free_tokens: float
    page_tokens: int = 1
    kv_bytes_per_token: float = 0.0
    host_total_tokens: float = 0.0
    host_free_tokens: float = 0.0
    d2h_backlog_bytes: float = 0.0
    h2d_backlog_bytes: float = 0.0
    step_s: float = 0.03  # the next decode step at the present batch
    capacity_tok_s: float | None = None  # None: not known yet, and then there is no overload
    stream_limit_tok_s: float | None = None  # what one stream alone could be decoded at; None: not known
    has_mixed_steps: bool = False  # those who run get their token in steps with prefill too
    costs: Costs = field(default_factory=Costs)


@dataclass(frozen=True, slots=True)
class View:
    """All that `plan` knows. The arrays belong to the caller and are never written to; rows have distinct rids."""

    engine: EngineView
    rids: Sequence[str]
    state: StateColumn
    serial: IntColumn
    arrival_s: FloatColumn
    since_s: FloatColumn
    rate_tok_s: FloatColumn
    unread_tokens: FloatColumn
    dry_s: FloatColumn
    is_started: BoolColumn
    run_tokens: FloatColumn
    is_first_run: BoolColumn
    context_tokens: FloatColumn
    remaining_tokens: FloatColumn
    length_tokens: FloatColumn
    kv_device_tokens: FloatColumn
    kv_host_tokens: FloatColumn
    kv_both_tokens: FloatColumn
    kv_shared_tokens: FloatColumn
    may_pause: BoolColumn
    is_held: BoolColumn
    carry: Carry = field(default_factory=Carry)

    @classmethod
    def from_rows(cls, rows: Iterable[RequestView], engine: EngineView, carry: Carry | None = None) -> "View":
        """Copies `rows` into columns. Of rows with the same rid the first counts."""
        kept = list({row.rid: row for row in reversed(list(rows))}.values())[::-1]
        columns: dict[str, Any] = {
            name: np.array([getattr(row, name) for row in kept], dtype=kind)
            for name, kind in COLUMN_TYPES.items()
            if name not in ("since_s", "serial")
        }
        columns["since_s"] = np.array([row.arrival_s if row.since_s is None else row.since_s for row in kept], float)
        columns["serial"] = np.array([i if row.serial < 0 else row.serial for i, row in enumerate(kept)], np.int64)
        codes = np.array([StateCode.of(row.state) for row in kept], dtype=np.int8)
        return cls(engine=engine, rids=[row.rid for row in kept], state=codes, carry=carry or Carry(), **columns)

    def __len__(self) -> int:
        return len(self.rids)

    def row_of(self, rid: str) -> int:
        """The row of a request. Raises KeyError."""
        try:
            return list(self.rids).index(rid)
        except ValueError:
            raise KeyError(rid) from None
