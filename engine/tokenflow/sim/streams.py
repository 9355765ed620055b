"""The live requests: the policy's columns, the engine's own beside them, and what is not a number."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.carry import Carry
from tokenflow.policy.states import RequestState
from tokenflow.policy.table import RequestTable
from tokenflow.policy.view import COLUMN_TYPES, RUNNING, WAITING, EngineView, RequestView, View
from tokenflow.sim.token_times import TokenTimes
from tokenflow.sim.transfers import Job
from tokenflow.sim.workload import SimRequest

_FIRST_CAPACITY = 64
OWN_COLUMNS: Final[dict[str, type[Any]]] = {
    "prompt_tokens": np.int64,
    "made_tokens": np.int64,
    "output_tokens": np.int64,
    "hidden_tokens": np.int64,
    "most_tokens": np.int64,  # what the scheduler is told that may come
    "run_start_tokens": np.int64,
    "pause_count": np.int64,
    "host_taken_tokens": np.int64,  # on the host or on the way there: what room is taken for
    "switch_bytes": np.float64,  # copied in either direction
    "read_rate_tok_s": np.float64,  # 0 until the first visible token, and where nobody reads
    "reader_s": np.float64,  # the reader's clock
}


class Stream:
    """One live request. Its figures stand in the columns of `Streams` at `row`."""

    __slots__ = (
        "is_live",
        "load",
        "must_load",
        "recompute_count",
        "release_to",
        "request",
        "rid",
        "row",
        "run_count",
        "times",
    )

    def __init__(self, rid: str, request: SimRequest, row: int) -> None:
        self.rid = rid
        self.request = request
        self.row = row
        self.times = TokenTimes()
        self.run_count = 0
        self.release_to: int | None = None  # device tokens that are left once what is being written has arrived
        self.must_load = False  # its start waits for what only the host has
        self.load: Job | None = None
        self.is_live = True
        self.recompute_count = 0


class Streams:
    """Rows are dense, as in RequestTable: a row number is good until the next `remove`."""

    def __init__(self) -> None:
        self.table = RequestTable()
        self._own: dict[str, Any] = {name: np.zeros(_FIRST_CAPACITY, kind) for name, kind in OWN_COLUMNS.items()}
        self.rows: list[Stream] = []
        self._columns: dict[str, NDArray[Any]] = {}  # as last asked for; forgotten when rows come or go

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, rid: str, request: SimRequest) -> Stream:
        """A request arrives."""
        most = request.max_tokens or request.output_tokens
        rate_tok_s = float("nan") if request.rate_tok_s is None else request.rate_tok_s
        row = self.table.add(
            RequestView(
                rid,
                arrival_s=request.arrival_s,
                rate_tok_s=rate_tok_s,
                context_tokens=request.prompt_tokens,
                remaining_tokens=most,
                length_tokens=most,
            )
        )
        assert row == len(self.rows)
        if row == len(self._own["made_tokens"]):
            self._own = {name: np.concatenate([column, np.zeros_like(column)]) for name, column in self._own.items()}
        for name in OWN_COLUMNS:
            self._own[name][row] = 0
        self._own["prompt_tokens"][row] = request.prompt_tokens
        self._own["output_tokens"][row] = request.output_tokens
        self._own["hidden_tokens"][row] = request.hidden_tokens
        self._own["most_tokens"][row] = most
        stream = Stream(rid, request, row)
        self.rows.append(stream)
        self._columns.clear()
        return stream

    def remove(self, stream: Stream) -> None:
        """It has ended. The last row moves into its place."""
        row, last = stream.row, self.rows[-1]
        self._columns.clear()
        self.table.remove(stream.rid)
        if last is not stream:
            for column in self._own.values():
                column[row] = column[last.row]
            self.rows[row] = last
            last.row = row
        self.rows.pop()

    def column(self, name: str) -> NDArray[Any]:
        """One column over all rows, writable: the policy's or the engine's own."""
        column = self._columns.get(name)
        if column is None:
            is_policys = name in COLUMN_TYPES or name == "state"
            column = self.table.column(name) if is_policys else self._own[name][: len(self.rows)]
            self._columns[name] = column
        return column

    def value(self, stream: Stream, name: str) -> int:
        """One whole number of one request."""
        return int(self.column(name)[stream.row])

    def state(self, stream: Stream) -> int:
        """Its StateCode."""
        return int(self.column("state")[stream.row])

    def set_state(self, stream: Stream, state: RequestState, now_s: float, *, is_new_run: bool = False) -> None:
        """`since_s` of a row is when its present run or pause began, not the step from prefill to decode."""
        since = self.column("since_s")
        before_s = float(since[stream.row])
        self.table.set_state(stream.rid, state, now_s)
        if not is_new_run and state in (RequestState.RUNNING, RequestState.PREFILLING, RequestState.LOADING):
            since[stream.row] = before_s

    def sync(self) -> None:
        """Brings the policy's columns up to date with what was made since."""
        made, state = self.column("made_tokens"), self.column("state")
        context = self.column("context_tokens")
        np.add(self.column("prompt_tokens"), np.maximum(made - 1, 0), out=context, casting="unsafe")
        device = self.column("kv_device_tokens")
        np.copyto(device, context, where=state == RUNNING)
        np.minimum(device, self.column("kv_host_tokens"), out=self.column("kv_both_tokens"))
        np.subtract(self.column("most_tokens"), made, out=self.column("remaining_tokens"), casting="unsafe")
        np.subtract(made, self.column("run_start_tokens"), out=self.column("run_tokens"), casting="unsafe")

    def view(self, engine: EngineView, carry: Carry) -> View:
        """The policy's view of this moment. `sync` and the readers come before."""
        return self.table.view(engine, carry)

    @property
    def waiting_count(self) -> int:
        return int((self.column("state") == WAITING).sum())
