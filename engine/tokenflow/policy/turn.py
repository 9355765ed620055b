"""One decision under way: what every variant needs, and the plan as it grows."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.carry import MAX_ELAPSED_S, Carry
from tokenflow.policy.ledger import Claim, Ledger, droppable_tokens, open_ledger, unwritten_tokens
from tokenflow.policy.overload import advance
from tokenflow.policy.plan import Action, Cause, Decision, Plan, Transfer
from tokenflow.policy.states import Reason
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.urgency import runways
from tokenflow.policy.view import StateCode, View
from tokenflow.policy.writeahead import writes

Rows = NDArray[np.intp]

_PAUSE_REASONS = {
    Cause.STARVATION_BOUND: Reason.PREEMPTED_PRIORITY,
    Cause.KV_FULL: Reason.PREEMPTED_KV_FULL,
    Cause.OPERATOR: Reason.PREEMPTED_OPERATOR,
    Cause.OVERLOAD: Reason.OVERLOAD_FCFS,
}
_START_REASONS = {
    Action.ADMIT: Reason.ADMITTED,
    Action.RESUME: Reason.RUNNING_STARVING,
    Action.RESUME_LOAD: Reason.LOADING,
    Action.RESUME_RECOMPUTE: Reason.RECOMPUTING,
}


@dataclass(slots=True)
class Turn:
    """Row sets, the ledger and the decisions so far. `running` shrinks as rows are paused."""

    view: View
    tunables: Tunables
    carry: Carry  # of this decision, to be handed on
    elapsed_s: float
    running: Rows
    seekers: Rows  # waiting or paused, and not held by an operator
    ledger: Ledger
    swap_credit: float
    pauses: list[Decision] = field(default_factory=list)
    starts: list[Decision] = field(default_factory=list)
    blocked: list[int] = field(default_factory=list)

    def pause(
        self, row: int, action: Action, cause: Cause, *, freed_tokens: float, runway_s: float,
        required_runway_s: float | None = None, partner_row: int | None = None,
    ) -> None:  # fmt: skip
        """A running row leaves. `freed_tokens` is what the ledger gains of pages."""
        reason = _PAUSE_REASONS.get(cause, Reason.PREEMPTED_SURPLUS)
        self.pauses.append(
            Decision(
                rid=self.view.rids[row], row=row, action=action, reason=reason, cause=cause, runway_s=runway_s,
                required_runway_s=required_runway_s, partner_row=partner_row,
            )
        )  # fmt: skip
        self.ledger.slots += 1
        self.ledger.free_tokens += freed_tokens

    def start(
        self, row: int, cause: Cause, *, claim: Claim, is_load: bool, urgency_s: float | None = None,
        benefit_s: float | None = None, partner_row: int | None = None,
    ) -> None:  # fmt: skip
        """A waiting or paused row gets a place."""
        action = self._start_action(row, is_load)
        reason = Reason.OVERLOAD_FCFS if cause is Cause.OVERLOAD else _START_REASONS[action]
        self.starts.append(
            Decision(
                rid=self.view.rids[row], row=row, action=action, reason=reason, cause=cause, urgency_s=urgency_s,
                benefit_s=benefit_s, partner_row=partner_row,
            )
        )  # fmt: skip
        self.ledger.take(claim)

    def close(self) -> Plan:
        """The plan, with the copies to the host for the next step and what has to leave the device for the starts."""
        carry = replace(self.carry, swap_credit=self.swap_credit)
        paused_rows = {decision.row for decision in self.pauses}
        return Plan(
            carry=carry,
            pauses=tuple(self.pauses),
            starts=tuple(self.starts),
            writes=writes(self.view, self.tunables, self.running, paused_rows),
            releases=self._releases() if self.starts else (),
            blocked=tuple(self.blocked),
        )

    def _start_action(self, row: int, is_load: bool) -> Action:
        view = self.view
        if view.state[row] == StateCode.WAITING:
            return Action.ADMIT
        if view.kv_device_tokens[row] >= view.context_tokens[row]:
            return Action.RESUME
        return Action.RESUME_LOAD if is_load else Action.RESUME_RECOMPUTE

    def _releases(self) -> tuple[Transfer, ...]:
        """Paused streams that give up device copies for the starts, the longest runway first."""
        lacking = self.ledger.claimed_tokens - max(self.view.engine.kv_free_tokens, 0.0)
        if lacking <= 0.0:
            return ()
        started = {decision.row for decision in self.starts}
        rows = np.flatnonzero((self.view.state == StateCode.PREEMPTED) & (self.view.kv_device_tokens > 0.0))
        held = droppable_tokens(self.view, rows) + unwritten_tokens(self.view, rows)
        order = np.lexsort((self.view.serial[rows], self.view.arrival_s[rows], -runways(self.view, rows)))
        found: list[Transfer] = []
        for row, tokens in zip(rows[order].tolist(), held[order].tolist(), strict=True):
            if lacking <= 0.0:
                break
            if row not in started and tokens > 0.0:
                found.append(Transfer(self.view.rids[row], row, int(tokens)))
                lacking -= tokens
        return tuple(found)


def open_turn(view: View, tunables: Tunables) -> Turn:
    """Advances the carried timers and sorts the rows into those who run and those who want to."""
    carry, now_s = view.carry, view.engine.now_s
    elapsed_s = carry.elapsed_s(now_s)
    overload = advance(view, tunables, elapsed_s)
    per_s = tunables.max_swaps_per_s
    most = per_s if per_s > 0.0 else 0.0  # a second's worth at once, for groups; at least one if any
    most = max(most, 1.0) if per_s > 0.0 else 0.0
    credit = most if carry.swap_credit is None else min(carry.swap_credit + elapsed_s * per_s, most)
    state = view.state
    running = np.flatnonzero(state == StateCode.RUNNING)
    seekers = np.flatnonzero((state <= StateCode.PREEMPTED) & ~view.is_held)
    next_carry = Carry(
        now_s=now_s,
        is_overloaded=overload.is_overloaded,
        demand_ratio=overload.demand_ratio,
        beyond_s=overload.beyond_s,
        switch_count=overload.switch_count,
        swap_credit=credit,
        slice_s=min(carry.slice_s + elapsed_s, 2.0 * MAX_ELAPSED_S) if carry.slice_s != float("inf") else carry.slice_s,
    )
    ledger = open_ledger(view, running.size)
    return Turn(view, tunables, next_carry, elapsed_s, running, seekers, ledger, credit)


def paused_rows(decisions: Sequence[Decision]) -> set[int]:
    return {decision.row for decision in decisions if decision.action.is_pause}
