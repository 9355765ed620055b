"""Places for seekers: free ones first, then swaps, in one order of urgency and in groups (docs/policy.md, "Groups")."""

import math

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.benefit import UNKNOWN_WAIT_S, StallCost, gain_s, victim_cost_s
from tokenflow.policy.decode_first import is_decode_first
from tokenflow.policy.gather import SWAP_COST_FACTOR, Company
from tokenflow.policy.ledger import claims
from tokenflow.policy.plan import Action, Cause
from tokenflow.policy.safety import required_runway_s
from tokenflow.policy.seekers import BOUND, CAUSES, FIRST, NOTHING, OUTRANK, RESCUE, RIDE, Seekers
from tokenflow.policy.turn import Turn
from tokenflow.policy.urgency import Floats
from tokenflow.policy.victims import Departure, Victims, find_victims

Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]
Chosen = list[tuple[int, Departure, float]]  # number of the victim, how it leaves, the runway it must have

_EPSILON_S = 1e-9
# A first token's claim to a victim with `surplus_s` fades within this share of the bound, once its target is missed.
LATE_RATIO = 0.1
# One that is taken along has at most this share of its victim's runway. Where all have plenty (a large batch, far ahead
# of its readers) trading nearly equal runways would move KV for nothing.
RIDE_RATIO = 0.5
_FREE_PLACE, _OVERLOAD, _FIRST_TOKEN = Cause.FREE_PLACE, Cause.OVERLOAD, Cause.FIRST_TOKEN
_RESCUE, _SHARE = Cause.RESCUE, Cause.SHARE
_FREE_DEPARTURE = Departure(Action.PAUSE_KEEP, 0.0, 0.0, 0.0, 0.0)


class Rotation:
    """One pass over the seekers. Holds what the group has cost so far, and which kinds of swap are over."""

    def __init__(self, turn: Turn, seekers: Seekers, runs_s: Floats, excess: Flags | None) -> None:
        """`runs_s` are the running rows' runways; `excess` marks who is not in the admitted set, in overload."""
        self._turn = turn
        self._seekers = seekers
        self._runs_s = runs_s
        self._excess = excess
        self._costs = turn.view.engine.costs
        self._victims: Victims | None = None
        self._stall: StallCost | None = None
        self._spent_s = 0.0
        self._queue = 0
        self._open = [True] * len(CAUSES)
        self._gone: list[int] = []
        self._first_unused = 0
        self._is_first_left = False

    def run(self, order: list[int]) -> None:
        """Hands out places in this order until none can be had."""
        turn, ledger = self._turn, self._turn.ledger
        if not order or (ledger.slots <= 0 and not self._candidates().rows):
            return
        self._read(order)
        # Below the tail of one step and its prefill chunk nothing can be had: that much may always be spent.
        budget_s = max(float(self._runs_s.min()) if self._runs_s.size else math.inf, self._costs.schedule_s)
        if self._is_decode_first(budget_s):
            return
        may_swap = turn.swap_credit >= 1.0 and any(self._open[FIRST:])
        if may_swap:
            company = self._company()
            may_swap = not company.is_worth_waiting_for()
        for place, want in enumerate(self._wants):
            if turn.starts and self._spent_s + self._added_s(place) > budget_s:
                break  # the rest of the group would let somebody who runs go dry: the next decision is a step away
            if ledger.can_take(self._claims.tokens[place], self._claims.own_tokens[place]):
                self._start(place, CAUSES[BOUND] if want == BOUND else _FREE_PLACE, None, None)
                continue
            if ledger.slots > 0:
                turn.blocked.append(self._rows[place])
            is_served = want != NOTHING and may_swap and self._open[want] and self._swap(place, want)
            if want == BOUND and not is_served:
                break  # nobody passes: the places and pages that come free are for this one
            if ledger.slots <= 0 and not (may_swap and any(self._open[FIRST:])):
                break
        turn.leave(self._gone)

    def _read(self, order: list[int]) -> None:
        """The terms of the seekers in order, as plain lists: single elements of arrays are slow to get at."""
        index = np.array(order, np.intp)
        seekers, terms = self._seekers, self._seekers.terms
        rows = seekers.rows[index]
        self._rows: list[int] = rows.tolist()
        self._wants: list[int] = seekers.wants[index].tolist()
        self._lead_s: list[float] = terms.lead_s[index].tolist()
        self._shared_s: list[float] = terms.shared_s[index].tolist()
        self._slack_s: list[float] = terms.slack_s[index].tolist()
        self._urgency_s: list[float] = terms.urgency_s[index].tolist()
        self._is_load: list[bool] = terms.is_load[index].tolist()
        self._is_first: list[bool] = terms.is_first[index].tolist()
        tunables, view = self._turn.tunables, self._turn.view
        late_s = view.engine.now_s - view.arrival_s[rows] - tunables.ttft_target_s
        left = np.clip(1.0 - late_s / (LATE_RATIO * tunables.starvation_bound_s), 0.0, 1.0)
        self._surplus_s: list[float] = (tunables.surplus_s * left).tolist()
        self._claims = claims(view, tunables, rows)
        wanted = set(self._wants)
        self._open = [want in wanted for want in range(len(CAUSES))]

    def _is_decode_first(self, budget_s: float) -> bool:
        """Whether to leave everybody waiting for one more step. Whoever is past the bound is not kept waiting."""
        if self._seekers.has_bound:
            return False
        group_s = 0.0
        for place in range(len(self._rows)):
            added_s = max(self._lead_s[place] - (self._shared_s[place] if place else 0.0), self._costs.prefill_row_s)
            if place and group_s + added_s > budget_s:
                break
            group_s += added_s
        dry = sum(
            slack_s <= lead_s and not is_first
            for slack_s, lead_s, is_first in zip(self._slack_s, self._lead_s, self._is_first, strict=True)
        )
        return is_decode_first(self._turn, self._runs_s, group_s, sum(self._is_first), dry)

    def _start(self, place: int, cause: Cause, benefit_s: float | None, partner: int | None) -> None:
        self._turn.start(
            self._rows[place], cause, self._claims.tokens[place], self._claims.own_tokens[place], self._is_load[place],
            self._urgency_s[place], benefit_s, partner,
        )  # fmt: skip
        self._spent_s += self._added_s(place)

    def _added_s(self, place: int) -> float:
        """What this one adds to the group's time. The first pays for the step: even with all KV there, one token is
        computed in it."""
        costs, lead_s = self._costs, self._lead_s[place]
        if self._spent_s <= 0.0:
            return max(lead_s, costs.prefill_fixed_s + costs.prefill_row_s)
        return max(lead_s - self._shared_s[place], costs.prefill_row_s)

    def _company(self) -> Company:
        return Company(
            self._turn, self._candidates(), self._seekers.firsts_wait, self._rows, self._wants, self._slack_s,
            self._lead_s, self._shared_s, self._surplus_s,
        )  # fmt: skip

    def _candidates(self) -> Victims:
        if self._victims is None:
            tunables = self._turn.tunables
            least_s = tunables.safety_factor * self._costs.schedule_s
            if self._seekers.has_bound:
                least_s = -1.0
            elif not self._turn.is_overloaded:
                least_s = max(least_s, tunables.reserve_s)  # short of `surplus_s`, some may have it in a few steps
            self._victims = find_victims(self._turn, self._seekers.firsts_wait, least_s, self._excess, self._runs_s)
        return self._victims

    def _swap(self, place: int, want: int) -> bool:
        """Makes room for one seeker if that is safe and worth it, or leaves everything as it is."""
        turn = self._turn
        if want == RIDE and not turn.pauses:
            return False
        if want == RESCUE and self._is_first_left and self._margin_s(place) > turn.view.engine.step_s:
            return False  # nobody is taken along while somebody without a first token could not be helped
        victims = self._candidates()
        chosen = self._collect(victims, place, want, must_be_safe=True)
        if not chosen and want == BOUND:
            chosen = self._collect(victims, place, want, must_be_safe=False)
        # Who is past the bound may need more victims than the credit ever holds, and nobody passes it.
        if not chosen or (len(chosen) > turn.swap_credit and want != BOUND):
            self._open[want] = False
            self._is_first_left |= want == FIRST
            return False
        benefit_s = self._benefit_s(victims, chosen, place, want)
        self._queue += 1
        is_ordered = want == BOUND or any(victims.is_excess[number] for number, _, _ in chosen)
        if not is_ordered and not benefit_s > turn.tunables.min_benefit_s:
            return False
        for number, leaving, required_s in chosen:
            row = victims.rows[number]
            victims.is_used[number] = True
            self._gone.append(row)
            turn.swap_credit -= 1.0
            turn.ledger.promise_host(leaving.written_tokens)
            turn.pause(
                row, leaving.action, self._pause_cause(victims, number, required_s, place), leaving.freed_tokens,
                victims.runways_s[number], required_s, self._rows[place],
            )  # fmt: skip
        self._start(place, CAUSES[want], benefit_s, victims.rows[chosen[0][0]])
        return True

    def _pause_cause(self, victims: Victims, number: int, required_s: float, place: int) -> Cause:
        if victims.is_excess[number]:
            return _OVERLOAD
        want = self._wants[place]
        if want == BOUND and victims.runways_s[number] >= required_s - _EPSILON_S:  # no exception was needed
            return _FIRST_TOKEN if self._is_first[place] else _RESCUE
        return CAUSES[want]

    def _collect(self, victims: Victims, place: int, want: int, *, must_be_safe: bool) -> Chosen:
        """The fewest leading candidates that free what is lacking; empty if there are not enough."""
        ledger = self._turn.ledger
        lacks_slot = ledger.slots <= 0
        claim = self._claims.tokens[place], self._claims.own_tokens[place]
        lacks_tokens = ledger.lacks_tokens(*claim)
        frees_pages = lacks_tokens > 0.0
        freed_tokens = written_tokens = 0.0
        found: Chosen = []
        used, excess, runways_s = victims.is_used, victims.is_excess, victims.runways_s
        while self._first_unused < len(used) and used[self._first_unused]:
            self._first_unused += 1
        last = victims.ahead_from if want == RIDE else len(used)  # who is far ahead leaves only for who is in need
        order = range(self._first_unused, last)
        # Whoever cannot be safe, whatever it would leave with, is passed over unpriced: there may be hundreds.
        least_s = self._least_s(place, want) if must_be_safe else -math.inf
        for number in order if must_be_safe else sorted(order, key=lambda number: -runways_s[number]):
            if used[number] or (want == OUTRANK and not excess[number]):
                continue
            if runways_s[number] < least_s and not excess[number]:
                continue
            leaving = victims.departure(number, frees_pages, written_tokens)
            if not lacks_slot and leaving.freed_tokens <= 0.0:
                continue  # would free nothing of what is lacking
            required_s = self._required_s(leaving, place, want)
            if must_be_safe and not excess[number]:
                needed_s = max(required_s, self._rival_s(place, want, leaving))
                if runways_s[number] < needed_s - _EPSILON_S:
                    continue
            found.append((number, leaving, required_s))
            lacks_slot = False
            freed_tokens += leaving.freed_tokens
            written_tokens += leaving.written_tokens
            lacks_tokens = ledger.lacks_tokens(*claim, written_tokens) - freed_tokens
            if lacks_tokens <= 0.0:
                return found if len(found) == 1 else _without_superfluous(found, -lacks_tokens)
        return []

    def _required_s(self, leaving: Departure, place: int, want: int) -> float:
        """A first-token swap lends the place for the newcomer's prefill and first run; a rescue is for good."""
        tunables, lead_s = self._turn.tunables, self._lead_s[place]
        is_first = want == FIRST
        return required_runway_s(
            evict_s=leaving.evict_s,
            load_s=leaving.load_s,
            schedule_s=self._costs.schedule_s,
            safety_factor=tunables.safety_factor,
            hold_s=self._hold_s(place) if is_first else 0.0,
            prefill_s=lead_s,
            reserve_s=tunables.reserve_s,
            surplus_s=self._surplus_s[place] if is_first else 0.0,
        )

    def _least_s(self, place: int, want: int) -> float:
        """The runway without which nobody is safe for this one: with KV that costs nothing to move."""
        required_s = self._required_s(_FREE_DEPARTURE, place, want)
        return max(required_s, self._rival_s(place, want, _FREE_DEPARTURE)) - _EPSILON_S

    def _hold_s(self, place: int) -> float:
        first_run_s = self._turn.tunables.first_run_tokens * self._turn.view.engine.step_s
        return self._spent_s + self._added_s(place) + first_run_s

    def _rival_s(self, place: int, want: int, leaving: Departure) -> float:
        """The runway that a victim needs beside being safe, for a newcomer that has runway itself.

        More than the newcomer has, in any case. Before it is due, more by what pays for the swap: pausing somebody
        for little longer than the swap takes would use up capacity in swaps (docs/policy.md). One that is taken along
        with a group has a whole quantum left, and the victim must have that more.
        """
        if want not in (RESCUE, RIDE):
            return 0.0
        tunables, step_s = self._turn.tunables, self._turn.view.engine.step_s
        slack_s, lead_s, schedule_s = self._slack_s[place], self._lead_s[place], self._costs.schedule_s
        margin_s = self._margin_s(place)
        if margin_s + tunables.reserve_s <= 2.0 * step_s:
            return slack_s
        if margin_s > step_s and want != RIDE:
            return slack_s + tunables.quantum_s
        cost_s = lead_s + leaving.evict_s + leaving.load_s + schedule_s
        rival_s = slack_s + min(SWAP_COST_FACTOR * cost_s, 2.0 * tunables.quantum_s)
        return max(rival_s, slack_s / RIDE_RATIO) if want == RIDE else rival_s

    def _margin_s(self, place: int) -> float:
        """Seconds until a paused stream has to be fetched, the reserve kept."""
        ahead_s = self._lead_s[place] + self._costs.schedule_s + self._turn.tunables.reserve_s
        return self._slack_s[place] - ahead_s

    def _benefit_s(self, victims: Victims, chosen: Chosen, place: int, want: int) -> float:
        """Net weighted seconds: the newcomer's gain, less what the victims and the batch lose by it."""
        tunables, costs = self._turn.tunables, self._costs
        if self._stall is None:
            self._stall = StallCost([value for value in self._runs_s.tolist() if value != math.inf])
        lead_s, spent_s = self._lead_s[place], self._spent_s
        wait_s = UNKNOWN_WAIT_S
        if costs.release_rate_per_s > 0.0:
            wait_s = min((self._queue + 1) / costs.release_rate_per_s, UNKNOWN_WAIT_S)
        net_s = gain_s(_SHARE if want == RIDE else CAUSES[want], self._slack_s[place], lead_s, wait_s, tunables)
        after_s = spent_s + self._added_s(place)
        net_s -= tunables.weight_stall * (self._stall.stall_s(after_s) - self._stall.stall_s(spent_s))
        hold_s = costs.schedule_s
        if want == FIRST:
            hold_s += self._hold_s(place)
        else:
            net_s -= tunables.weight_throughput * lead_s  # a first prefill is due anyway, a return is not
        for number, leaving, _ in chosen:
            back_s = hold_s + leaving.evict_s + leaving.load_s
            net_s -= victim_cost_s(victims.runways_s[number], back_s, leaving.load_s, tunables)
        return net_s


def _without_superfluous(found: Chosen, spare_tokens: float) -> Chosen:
    """A later, larger victim can make earlier ones needless. One stays, for the slot."""
    for item in found[:-1]:
        if item[1].freed_tokens <= spare_tokens:
            spare_tokens -= item[1].freed_tokens
            found = [other for other in found if other is not item]
    return found
