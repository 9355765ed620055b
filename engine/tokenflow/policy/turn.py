"""One decision under way: what every variant needs, and the plan as it grows."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.carry import Carry
from tokenflow.policy.ledger import Ledger, growth_tokens, headroom_tokens, open_ledger
from tokenflow.policy.overload import OverloadState, advance
from tokenflow.policy.plan import Action, Cause, Decision, Plan, Release
from tokenflow.policy.releases import releases
from tokenflow.policy.states import Reason
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.view import PREEMPTED, RUNNING, WAITING, View
from tokenflow.policy.writeahead import writes

Rows = NDArray[np.intp]

# Enum members are looked up once: on Python 3.11 each look-up costs as much as a small array operation.
_KEEP, _ADMIT, _RESUME, _LOAD, _RECOMPUTE = (
    Action.PAUSE_KEEP,
    Action.ADMIT,
    Action.RESUME,
    Action.RESUME_LOAD,
    Action.RESUME_RECOMPUTE,
)
_OVERLOAD = Cause.OVERLOAD
_PAUSE_REASONS = {
    Cause.STARVATION_BOUND.value: Reason.PREEMPTED_PRIORITY,
    Cause.KV_FULL.value: Reason.PREEMPTED_KV_FULL,
    Cause.OPERATOR.value: Reason.PREEMPTED_OPERATOR,
    Cause.OVERLOAD.value: Reason.OVERLOAD_FCFS,
}
_SURPLUS, _FCFS = Reason.PREEMPTED_SURPLUS, Reason.OVERLOAD_FCFS
_ADMITTED, _STARVING, _LOADING, _RECOMPUTING = (
    Reason.ADMITTED,
    Reason.RUNNING_STARVING,
    Reason.LOADING,
    Reason.RECOMPUTING,
)


@dataclass(slots=True)
class Turn:
    """Row sets, the ledger and the decisions so far. `running` shrinks as rows are paused."""

    view: View
    tunables: Tunables
    overload: OverloadState
    slice_s: float
    running: Rows
    seekers: Rows  # waiting or paused, not held by an operator, and not larger than the pool
    ledger: Ledger
    swap_credit: float
    pauses: list[Decision] = field(default_factory=list)
    starts: list[Decision] = field(default_factory=list)
    blocked: list[int] = field(default_factory=list)
    freed_tokens: float = 0.0  # device pages of victims whose KV leaves at once

    @property
    def is_overloaded(self) -> bool:
        return self.overload.is_overloaded

    def pause(
        self, row: int, action: Action, cause: Cause, freed_tokens: float, runway_s: float,
        required_runway_s: float | None = None, partner_row: int | None = None,
    ) -> None:  # fmt: skip
        """A running row leaves. `freed_tokens` is what the ledger gains of pages."""
        reason = _PAUSE_REASONS.get(cause, _SURPLUS)
        self.pauses.append(
            Decision(
                self.view.rids[row], row, action, reason, cause, None, runway_s, required_runway_s, None, partner_row
            )
        )
        self.ledger.slots += 1
        self.ledger.free_tokens += freed_tokens + headroom_tokens(self.view)  # it grows no more
        if action is not _KEEP:
            self.freed_tokens += freed_tokens

    def start(
        self, row: int, cause: Cause, tokens: float, own_tokens: float, is_load: bool, urgency_s: float | None = None,
        benefit_s: float | None = None, partner_row: int | None = None,
    ) -> None:  # fmt: skip
        """A waiting or paused row gets a place; `tokens` and `own_tokens` are its claim."""
        action, reason = self._start_action(row, is_load)
        if cause is _OVERLOAD:
            reason = _FCFS
        self.starts.append(
            Decision(self.view.rids[row], row, action, reason, cause, urgency_s, None, None, benefit_s, partner_row)
        )
        self.ledger.take(tokens, own_tokens)

    def leave(self, rows: list[int]) -> None:
        """Takes paused rows out of the running ones."""
        if rows:
            is_gone = np.zeros(len(self.view), np.bool_)
            is_gone[rows] = True
            self.running = self.running[~is_gone[self.running]]

    def close(self) -> Plan:
        """The plan, with the copies to the host for the next step and what has to leave the device for the starts."""
        overload = self.overload
        carry = Carry(
            self.view.engine.now_s,
            overload.is_overloaded,
            overload.demand_ratio,
            overload.beyond_s,
            overload.switch_count,
            self.swap_credit,
            self.slice_s,
        )
        host_room = self.view.engine.host_free_tokens - self.ledger.promised_host_tokens
        released = self._releases(host_room)
        for release in released:
            host_room -= release.write_tokens
        return Plan(
            carry,
            tuple(self.pauses),
            tuple(self.starts),
            writes(self.view, self.tunables, self.running, host_room),
            released,
            tuple(self.blocked),
        )

    def _releases(self, host_room_tokens: float) -> tuple[Release, ...]:
        """Nothing, where what is free suffices for the starts and for the growth of those who run."""
        growth = growth_tokens(self.view, self.running)
        lacking = self.ledger.claimed_tokens + growth - max(self.view.engine.kv_free_tokens, 0.0) - self.freed_tokens
        if lacking <= 0.0:
            return ()
        started = {decision.row for decision in self.starts}
        may_give_up = lacking if self.ledger.is_idle else growth
        kept = [decision.row for decision in self.pauses if decision.action is _KEEP]
        return releases(self.view, started, kept, lacking, may_give_up, host_room_tokens)

    def _start_action(self, row: int, is_load: bool) -> tuple[Action, Reason]:
        view = self.view
        if view.state.item(row) == WAITING:
            return _ADMIT, _ADMITTED
        if view.kv_device_tokens.item(row) >= view.context_tokens.item(row):
            return _RESUME, _STARVING
        return (_LOAD, _LOADING) if is_load else (_RECOMPUTE, _RECOMPUTING)


def open_turn(view: View, tunables: Tunables) -> Turn:
    """Advances the carried timers and sorts the rows into those who run and those who want to."""
    carry, engine = view.carry, view.engine
    elapsed_s = carry.elapsed_s(engine.now_s)
    per_s = tunables.max_swaps_per_s
    most = max(per_s, 1.0) if per_s > 0.0 else 0.0  # a second's worth at once, for groups; one at least if any
    credit = most if carry.swap_credit is None else min(carry.swap_credit + elapsed_s * per_s, most)
    slice_s = carry.slice_s
    if slice_s != math.inf:
        slice_s += elapsed_s
    state = view.state
    running = (state == RUNNING).nonzero()[0]
    seekers = (state <= PREEMPTED).nonzero()[0]
    if seekers.size:
        # What is larger than the whole pool can never run: it must not hold up those who can.
        can_run = (view.context_tokens[seekers] < engine.kv_total_tokens) & ~view.is_held[seekers]
        seekers = seekers[can_run]
    return Turn(
        view, tunables, advance(view, tunables, elapsed_s), slice_s, running, seekers,
        open_ledger(view, running.size), credit,
    )  # fmt: skip
