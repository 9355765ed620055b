"""Swapping running rows for one newcomer: shared by the variants that follow other people's formulas."""

from collections.abc import Callable

import numpy as np

from tokenflow.policy.ledger import claims
from tokenflow.policy.plan import Cause
from tokenflow.policy.turn import Turn
from tokenflow.policy.urgency import Urgencies
from tokenflow.policy.victims import Departure, Victims, find_victims

_EPSILON_S = 1e-9

# Called with a candidate's number and how it would leave: the runway that it must have, or None if it must stay.
Condition = Callable[[int, Departure], float | None]


class Exchange:
    """Makes room for newcomers one at a time; a newcomer that cannot be fitted changes nothing."""

    def __init__(self, turn: Turn, terms: Urgencies, least_runway_s: float) -> None:
        """`least_runway_s`: below it nobody could be safe for anybody (one past the starvation bound looks at all)."""
        self._turn = turn
        self._terms = terms
        self._rows = turn.seekers
        self._gone: list[int] = []
        self.claims = claims(turn.view, turn.tunables, turn.seekers)
        self._has_bound = not turn.is_overloaded and bool(terms.starving_s.max() >= turn.tunables.starvation_bound_s)
        least_s = -1.0 if self._has_bound else least_runway_s
        self.victims: Victims = find_victims(turn, bool(terms.is_first.any()), least_s)

    def is_hopeless(self) -> bool:
        """True if no slot is free and nobody may leave: there is nothing to decide."""
        return self._turn.ledger.slots <= 0 and not self.victims.rows

    def start_free(self, index: int) -> bool:
        """A place without anybody leaving. False if there is none."""
        if not self._turn.ledger.can_take(self.claims.tokens[index], self.claims.own_tokens[index]):
            return False
        self._start(index, Cause.FREE_PLACE, None)
        return True

    @property
    def gone_count(self) -> int:
        """So many have made room; `close` takes them out of the running rows."""
        return len(self._gone)

    def swap(self, index: int, cause: Cause, condition: Condition, *, takes_place: bool = False) -> bool:
        """A place from those candidates, in their order, whose runway meets the condition. False if that fails.

        `takes_place`: somebody must leave though nothing is lacking, because as many run as are to run.
        """
        turn, victims = self._turn, self.victims
        lacks_slot = turn.ledger.slots <= 0 or takes_place
        claim = self.claims.tokens[index], self.claims.own_tokens[index]
        lacks_tokens = turn.ledger.lacks_tokens(*claim)
        frees_pages = lacks_tokens > 0.0
        freed_tokens = written_tokens = 0.0
        chosen: list[tuple[int, Departure, float]] = []
        for number, is_used in enumerate(victims.is_used):
            if not lacks_slot and lacks_tokens <= 0.0:
                break
            if is_used or len(chosen) + 1 > turn.swap_credit:
                continue
            leaving = victims.departure(number, frees_pages, written_tokens)
            if not lacks_slot and leaving.freed_tokens <= 0.0:
                continue
            required_s = condition(number, leaving)
            if required_s is None or victims.runways_s[number] < required_s - _EPSILON_S:
                continue
            chosen.append((number, leaving, required_s))
            lacks_slot = False
            freed_tokens += leaving.freed_tokens
            written_tokens += leaving.written_tokens
            lacks_tokens = turn.ledger.lacks_tokens(*claim, written_tokens) - freed_tokens
        if not chosen or lacks_slot or lacks_tokens > 0.0:
            return False
        for number, leaving, required_s in chosen:
            self._pause(number, leaving, required_s, cause, int(self._rows[index]))
        self._start(index, cause, victims.rows[chosen[0][0]])
        return True

    def serve_starving(self, safe_for: Callable[[int], Condition]) -> int | None:
        """The one that has gone without for longest, if past the bound, gets a place: free, safely, or else from
        whoever has the longest runway. `safe_for` gives the condition on victims for a newcomer's index. Returns its
        index if it was past the bound, whether or not a place was found."""
        if not self._has_bound:
            return None
        view, rows = self._turn.view, self._rows
        index = int(np.lexsort((view.serial[rows], view.arrival_s[rows], -self._terms.starving_s))[0])
        first = bool(self._terms.is_first[index])
        if not self.start_free(index) and not self.swap(
            index, Cause.FIRST_TOKEN if first else Cause.RESCUE, safe_for(index)
        ):
            self.swap(index, Cause.STARVATION_BOUND, lambda _number, _leaving: 0.0)
        return index

    def close(self) -> None:
        """Takes those who left out of the running rows."""
        self._turn.leave(self._gone)

    def _pause(self, number: int, leaving: Departure, required_s: float, cause: Cause, newcomer: int) -> None:
        victims, turn = self.victims, self._turn
        victims.is_used[number] = True
        self._gone.append(victims.rows[number])
        turn.swap_credit -= 1.0
        turn.ledger.promise_host(leaving.written_tokens)
        turn.pause(
            victims.rows[number], leaving.action, cause, leaving.freed_tokens, victims.runways_s[number],
            required_s, newcomer,
        )  # fmt: skip

    def _start(self, index: int, cause: Cause, partner: int | None) -> None:
        self._turn.start(
            int(self._rows[index]), cause, self.claims.tokens[index], self.claims.own_tokens[index],
            bool(self._terms.is_load[index]), float(self._terms.urgency_s[index]), None, partner,
        )  # fmt: skip
