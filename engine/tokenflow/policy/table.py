"""The columns of all live requests, kept up to date row by row, so that a view costs no copying."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.carry import Carry
from tokenflow.policy.states import RequestState
from tokenflow.policy.view import COLUMN_TYPES, EngineView, RequestView, StateCode, View

_FIRST_CAPACITY = 64
_FIELDS = tuple(item.name for item in fields(RequestView) if item.name not in ("rid", "state", "serial"))


class RequestTable:
    """Rows are dense: removing one moves the last into its place, so a row number is good only until then.

    Whole columns may be written through `column`, which is the fast way for what changes at every step.
    """

    def __init__(self) -> None:
        self._rids: list[str] = []
        self._rows: dict[str, int] = {}
        self._next_serial = 0
        self._state = np.zeros(_FIRST_CAPACITY, np.int8)
        self._columns: dict[str, Any] = {n: np.zeros(_FIRST_CAPACITY, kind) for n, kind in COLUMN_TYPES.items()}

    def __len__(self) -> int:
        return len(self._rids)

    def __contains__(self, rid: str) -> bool:
        return rid in self._rows

    def add(self, request: RequestView) -> int:
        """Registers a request and returns its row. One that is here is updated and keeps its place."""
        row = self._rows.get(request.rid)
        if row is None:
            row = len(self._rids)
            if row == len(self._state):
                self._grow()
            self._rids.append(request.rid)
            self._rows[request.rid] = row
            self._columns["serial"][row] = self._next_serial
            self._next_serial += 1
        self._state[row] = StateCode.of(request.state)
        for name in _FIELDS:
            self._columns[name][row] = getattr(request, name) if name != "since_s" else _since(request)
        return row

    def remove(self, rid: str) -> None:
        """Forgets a request; one that is not here is no error (requests vanish)."""
        row = self._rows.pop(rid, None)
        if row is None:
            return
        last = len(self._rids) - 1
        if row != last:
            moved = self._rids[last]
            self._rids[row] = moved
            self._rows[moved] = row
            self._state[row] = self._state[last]
            for column in self._columns.values():
                column[row] = column[last]
        self._rids.pop()

    def row_of(self, rid: str) -> int:
        """The row of a request, valid until the next `remove`. Raises KeyError."""
        return self._rows[rid]

    def set_state(self, rid: str, state: RequestState, now_s: float) -> None:
        """The request enters another state now. Raises KeyError."""
        row = self._rows[rid]
        self._state[row] = StateCode.of(state)
        self._columns["since_s"][row] = now_s

    def set(self, rid: str, **values: float | bool) -> None:
        """Writes some columns of one request. Raises KeyError for an unknown rid or column."""
        row = self._rows[rid]
        for name, value in values.items():
            self._columns[name][row] = value

    @property
    def rids(self) -> Sequence[str]:
        """Whose row is which, until the next `add` or `remove`."""
        return self._rids

    def fill(self, names: Sequence[str], rows: Sequence[Sequence[float]]) -> None:
        """Writes these columns of all rows at once, in the order of `rids`. `state` takes StateCode numbers."""
        assert len(rows) == len(self._rids)
        if not rows:
            return
        for name, values in zip(names, np.array(rows, np.float64).T, strict=True):
            self.column(name)[:] = values

    def column(self, name: str) -> NDArray[Any]:
        """One column over all rows, writable. `state` holds StateCode numbers."""
        count = len(self._rids)
        column: NDArray[Any] = self._state if name == "state" else self._columns[name]
        return column[:count]

    def view(self, engine: EngineView, carry: Carry) -> View:
        """The table as a View. It shares the arrays: decide before the next change, or see later values."""
        count = len(self._rids)
        columns: dict[str, Any] = {name: column[:count] for name, column in self._columns.items()}
        return View(engine=engine, rids=self._rids, state=self._state[:count], carry=carry, **columns)

    def _grow(self) -> None:
        self._state = np.concatenate([self._state, np.zeros_like(self._state)])
        self._columns = {n: np.concatenate([column, np.zeros_like(column)]) for n, column in self._columns.items()}


def _since(request: RequestView) -> float:
    return request.arrival_s if request.since_s is None else request.since_s
