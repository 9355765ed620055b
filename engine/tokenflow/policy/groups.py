"""Places for seekers: free ones first, then swaps, in one order of urgency and in groups (design.md section 5)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.benefit import UNKNOWN_WAIT_S, Newcomer, StallCost, Victim, swap_benefit_s
from tokenflow.policy.ledger import Claim, claims
from tokenflow.policy.plan import Cause
from tokenflow.policy.turn import Turn
from tokenflow.policy.urgency import Urgencies, runways
from tokenflow.policy.victims import Departure, Victims, beyond_cap, find_victims

Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]

_SPARE_CANDIDATES = 32  # looked at beyond those who could get a place at all
_EPSILON_S = 1e-9
SWAP_COST_FACTOR = 8.0  # before it is due, a rescue must buy this many times what the swap costs
_SWAPS = (Cause.FIRST_TOKEN, Cause.RESCUE, Cause.SHARE, Cause.OVERLOAD, Cause.STARVATION_BOUND)


@dataclass(slots=True)
class Seekers:
    """Everybody who wants a place, as arrays; `wants` says by which rule each may ask somebody to leave."""

    rows: Rows
    terms: Urgencies
    wants: NDArray[np.int8]  # 0 nothing, else 1 + index into _SWAPS

    def cause(self, index: int) -> Cause | None:
        code = int(self.wants[index])
        return _SWAPS[code - 1] if code else None


def classify(turn: Turn, rows: Rows, terms: Urgencies, beyond_exists: bool) -> Seekers:
    """Who may ask for a swap, and why.

    A rotation begins when a first token is awaited or a paused stream has less than one step (beyond lead and
    reserve) left; it takes everybody along who would have less than a quantum left. One row at most is marked as
    past the starvation bound: the one that has gone without for longest.
    """
    view, tunables = turn.view, turn.tunables
    wants = np.zeros(rows.size, np.int8)
    if turn.carry.is_overloaded:  # any of the admitted may take the place of somebody who is not
        wants[:] = 1 + _SWAPS.index(Cause.OVERLOAD)
    ahead_s = view.engine.costs.schedule_s + tunables.reserve_s
    margin_s = np.where(terms.is_paused_reader, terms.slack_s - terms.lead_s - ahead_s, np.inf)
    if beyond_exists:
        shareable = view.unread_tokens[rows] < 0.5 * tunables.max_unread_ratio * view.length_tokens[rows]
        wants[terms.is_paused_reader & shareable] = 1 + _SWAPS.index(Cause.SHARE)
    if terms.is_first.any() or (margin_s.size and margin_s.min() <= view.engine.step_s):
        wants[margin_s <= max(tunables.quantum_s, view.engine.step_s)] = 1 + _SWAPS.index(Cause.RESCUE)
    wants[terms.is_first] = 1 + _SWAPS.index(Cause.FIRST_TOKEN)
    if not turn.carry.is_overloaded and terms.starving_s.max() >= tunables.starvation_bound_s:
        longest = np.lexsort((view.serial[rows], view.arrival_s[rows], -terms.starving_s))[0]
        wants[longest] = 1 + _SWAPS.index(Cause.STARVATION_BOUND)
    return Seekers(rows, terms, wants)


def order_of(turn: Turn, seekers: Seekers) -> list[int]:
    """Indices of the seekers worth looking at, the most urgent first; whoever is past the bound leads.

    Only as many as could get a place are sorted: the rest is cut off at the right urgency in linear time.
    """
    view, rows = turn.view, seekers.rows
    rank = (seekers.wants != 1 + _SWAPS.index(Cause.STARVATION_BOUND)).astype(np.int8)
    picked = np.arange(rows.size) if turn.ledger.slots > 0 else np.flatnonzero(seekers.wants)
    urgency_s = seekers.terms.urgency_s
    most = turn.ledger.slots + turn.running.size + _SPARE_CANDIDATES
    if picked.size > 2 * most:
        limit = np.partition(urgency_s[picked], most)[most]
        picked = picked[(urgency_s[picked] <= limit) | (rank[picked] == 0)]
    chosen = rows[picked]
    keys = (view.serial[chosen], view.arrival_s[chosen], urgency_s[picked], rank[picked])
    ordered: list[int] = picked[np.lexsort(keys)].tolist()
    return ordered[: most + 1]


class Rotation:
    """One pass over the seekers. Holds what the group has cost so far."""

    def __init__(self, turn: Turn, seekers: Seekers, excess: Flags | None) -> None:
        self._turn = turn
        self._seekers = seekers
        self._excess = excess
        self._costs = turn.view.engine.costs
        firsts = 1 + _SWAPS.index(Cause.FIRST_TOKEN)
        self._firsts_wait = bool((seekers.wants == firsts).any())
        self._lead_s: list[float] = seekers.terms.lead_s.tolist()
        self._slack_s: list[float] = seekers.terms.slack_s.tolist()
        self._urgency_s: list[float] = seekers.terms.urgency_s.tolist()
        self._is_load: list[bool] = seekers.terms.is_load.tolist()
        self._victims: Victims | None = None
        self._runs_s: StallCost | None = None
        self._budget_s = 0.0
        self._spent_s = 0.0
        self._queue = 0
        self._closed: set[Cause] = set()
        self._gone: set[int] = set()

    def run(self, order: list[int]) -> None:
        """Hands out places in this order until none can be had."""
        turn, ledger = self._turn, self._turn.ledger
        if not order:
            return
        index_array = np.array(order, np.intp)
        asked = claims(turn.view, turn.tunables, self._seekers.rows[index_array])
        self._open()
        for index, claim in zip(order, asked, strict=True):
            cause = self._seekers.cause(index)
            lead_s = self._lead_s[index]
            if turn.starts and self._spent_s + lead_s > self._budget_s:
                break  # the rest of the group would let somebody who runs go dry: the next decision is a step away
            if ledger.can_take(claim):
                self._start(index, claim, Cause.FREE_PLACE if cause is not Cause.STARVATION_BOUND else cause)
                continue
            if ledger.slots > 0 and ledger.lacks_tokens(claim) > 0.0:
                turn.blocked.append(int(self._seekers.rows[index]))
            if cause is not None:
                self._swap(index, claim, cause)
            if cause is Cause.STARVATION_BOUND and ledger.slots > 0 and not self._has_started(index):
                break  # nobody passes: the pages that come free are for this one
            if ledger.slots <= 0 and len(self._closed) == len(_SWAPS):
                break
        if self._gone:
            turn.running = turn.running[~np.isin(turn.running, list(self._gone))]

    def _open(self) -> None:
        view, running = self._turn.view, self._turn.running
        runs_s = runways(view, running).tolist()
        self._runs_s = StallCost([runway_s for runway_s in runs_s if runway_s != float("inf")])
        # Below the tail of one step and its prefill chunk nothing can be had: that much may always be spent.
        self._budget_s = max(min(runs_s, default=float("inf")), self._costs.schedule_s)

    def _has_started(self, index: int) -> bool:
        row = int(self._seekers.rows[index])
        return bool(self._turn.starts) and self._turn.starts[-1].row == row

    def _start(self, index: int, claim: Claim, cause: Cause, benefit_s: float | None = None, partner: int | None = None
    ) -> None:  # fmt: skip
        row = int(self._seekers.rows[index])
        self._turn.start(
            row, cause, claim=claim, is_load=self._is_load[index], urgency_s=self._urgency_s[index],
            benefit_s=benefit_s, partner_row=partner,
        )  # fmt: skip
        self._spent_s += self._lead_s[index]

    def _candidates(self) -> Victims:
        if self._victims is None:
            has_bound = bool((self._seekers.wants == len(_SWAPS)).any())
            least_s = -1.0 if has_bound else self._turn.tunables.safety_factor * self._costs.schedule_s
            self._victims = find_victims(self._turn, self._firsts_wait, self._excess, least_s)
        return self._victims

    def _swap(self, index: int, claim: Claim, cause: Cause) -> None:
        """Makes room for one seeker if that is safe and worth it, or leaves everything as it is."""
        turn = self._turn
        if cause in self._closed or turn.swap_credit < 1.0:
            return
        victims = self._candidates()
        chosen = self._choose(victims, index, claim, cause)
        if not chosen or len(chosen) > turn.swap_credit:
            self._closed.add(cause)
            return
        bounded = cause is Cause.STARVATION_BOUND
        benefit_s = self._benefit_s(victims, chosen, index, cause)
        is_ordered = bounded or any(victims.is_excess[number] for number, _, _ in chosen)
        self._queue += 1
        if not is_ordered and not benefit_s > turn.tunables.min_benefit_s:
            return
        newcomer = int(self._seekers.rows[index])
        for number, leaving, required_s in chosen:
            victims.is_used[number] = True
            self._gone.add(victims.rows[number])
            turn.swap_credit -= 1.0
            turn.ledger.host_free_tokens -= leaving.written_tokens
            pause_cause = self._pause_cause(victims, number, required_s, cause)
            turn.pause(
                victims.rows[number], leaving.action, pause_cause, freed_tokens=leaving.freed_tokens,
                runway_s=victims.runways_s[number], required_runway_s=required_s, partner_row=newcomer,
            )  # fmt: skip
        self._start(index, claim, cause, benefit_s, victims.rows[chosen[0][0]])

    @staticmethod
    def _pause_cause(victims: Victims, number: int, required_s: float, cause: Cause) -> Cause:
        if victims.is_excess[number]:
            return Cause.OVERLOAD
        if cause is Cause.STARVATION_BOUND and victims.runways_s[number] >= required_s - _EPSILON_S:
            return Cause.FIRST_TOKEN  # safe all the same: no exception was needed
        return cause

    def _choose(self, victims: Victims, index: int, claim: Claim, cause: Cause) -> list[tuple[int, Departure, float]]:
        """The fewest leading candidates that free what is lacking; empty if there are not enough."""
        found = self._collect(victims, index, claim, cause, must_be_safe=True)
        if not found and cause is Cause.STARVATION_BOUND:
            found = self._collect(victims, index, claim, cause, must_be_safe=False)
        return found

    def _collect(
        self, victims: Victims, index: int, claim: Claim, cause: Cause, *, must_be_safe: bool
    ) -> list[tuple[int, Departure, float]]:
        ledger, tunables = self._turn.ledger, self._turn.tunables
        lacks_slot = ledger.slots <= 0
        lacks_tokens = ledger.lacks_tokens(claim)
        is_first = cause is Cause.FIRST_TOKEN
        hold_s = self._hold_s(index) if is_first else 0.0
        surplus_s = tunables.surplus_s if is_first else 0.0
        found: list[tuple[int, Departure, float]] = []
        for number, is_used in enumerate(victims.is_used):
            if is_used or not self._may_ask(victims, number, cause):
                continue
            leaving = victims.departure(number, frees_pages=lacks_tokens > 0.0)
            if not lacks_slot and leaving.freed_tokens <= 0.0:
                continue  # would free nothing of what is lacking
            required_s = victims.required_s(leaving, hold_s=hold_s, prefill_s=self._lead_s[index], surplus_s=surplus_s)
            if must_be_safe and not victims.is_excess[number]:
                least_s = max(required_s, self._rival_s(index, cause, leaving))
                if victims.runways_s[number] < least_s - _EPSILON_S:
                    continue
            found.append((number, leaving, required_s))
            lacks_slot = False
            lacks_tokens -= leaving.freed_tokens
            if lacks_tokens <= 0.0:
                return _without_superfluous(found, -lacks_tokens)
        return []

    @staticmethod
    def _may_ask(victims: Victims, number: int, cause: Cause) -> bool:
        if cause is Cause.OVERLOAD:
            return victims.is_excess[number]
        return cause is not Cause.SHARE or victims.is_beyond[number]

    def _hold_s(self, index: int) -> float:
        """For how long a first-token swap lends the place: the newcomer's prefill and its first run."""
        return self._lead_s[index] + self._turn.tunables.first_run_tokens * self._turn.view.engine.step_s

    def _rival_s(self, index: int, cause: Cause, leaving: Departure) -> float:
        """The runway that a victim needs beside being safe, for a newcomer that has runway itself.

        More than the newcomer has, in any case. Before it is due, more by what pays for the swap: pausing somebody
        for little longer than the swap takes would use up capacity in swaps (docs/policy.md). One that is taken along
        with a group has a whole quantum left, and the victim must have that more.
        """
        if cause is not Cause.RESCUE and cause is not Cause.SHARE:
            return 0.0
        slack_s, lead_s, schedule_s = self._slack_s[index], self._lead_s[index], self._costs.schedule_s
        margin_s = slack_s - lead_s - schedule_s
        if margin_s <= 2.0 * self._turn.view.engine.step_s:
            return slack_s
        if margin_s - self._turn.tunables.reserve_s > self._turn.view.engine.step_s:
            return slack_s + self._turn.tunables.quantum_s
        cost_s = lead_s + leaving.evict_s + leaving.load_s + schedule_s
        return slack_s + min(SWAP_COST_FACTOR * cost_s, 2.0 * self._turn.tunables.quantum_s)

    def _benefit_s(
        self, victims: Victims, chosen: list[tuple[int, Departure, float]], index: int, cause: Cause
    ) -> float:
        assert self._runs_s is not None
        release_per_s = self._costs.release_rate_per_s
        wait_s = (self._queue + 1) / release_per_s if release_per_s > 0.0 else UNKNOWN_WAIT_S
        lead_s = self._lead_s[index]
        extra_s = self._spent_s + lead_s
        newcomer = Newcomer(cause, self._slack_s[index], lead_s, min(wait_s, UNKNOWN_WAIT_S))
        leavers = [
            Victim(victims.runways_s[number], leaving.evict_s, leaving.load_s, victims.is_beyond[number])
            for number, leaving, _ in chosen
        ]
        return swap_benefit_s(
            newcomer,
            leavers,
            self._turn.tunables,
            hold_s=self._hold_s(index) if cause is Cause.FIRST_TOKEN else 0.0,
            schedule_s=self._costs.schedule_s,
            batch_stall_s=self._runs_s.stall_s(extra_s) - self._runs_s.stall_s(self._spent_s),
        )


def _without_superfluous(
    found: list[tuple[int, Departure, float]], spare_tokens: float
) -> list[tuple[int, Departure, float]]:
    """A later, larger victim can make earlier ones needless. One stays, for the slot."""
    for item in found[:-1]:
        if item[1].freed_tokens <= spare_tokens:
            spare_tokens -= item[1].freed_tokens
            found = [other for other in found if other is not item]
    return found


def some_beyond(turn: Turn) -> bool:
    """True if a running stream is so far ahead of its reader that its tokens count for nothing now."""
    running = turn.running
    is_beyond = beyond_cap(turn.view, running, turn.tunables.max_unread_ratio)
    return bool((is_beyond & ~np.isnan(turn.view.rate_tok_s[running])).any())
