"""Whether a swap had better wait a moment for others, so that they share one step (docs/policy.md "Groups").

A group that comes back costs everybody who goes on running one step. One group of eight costs nothing that eight
decode steps would not have cost; eight groups of one cost seven slots a step each.
"""

from dataclasses import dataclass

import numpy as np

from tokenflow.policy.buffer import MIN_RATE_TOK_S
from tokenflow.policy.seekers import BOUND, FIRST, NOTHING, RIDE
from tokenflow.policy.turn import Turn
from tokenflow.policy.victims import Victims, ready_in

# Before it is due, a swap must buy this many times what it costs.
SWAP_COST_FACTOR = 8.0
GATHER_STEPS = 4  # how long a swap for a first token waits for company at most
GATHER_ROTATIONS = 4.0  # rotations for which a group stays together, once gathered
_MOST_PAIRS = 64  # looked at: beyond so many it matters little whether one more joins
_EPSILON_S = 1e-9


@dataclass(slots=True)
class Company:
    """Those who ask for a place, in order, and those who may leave now; all lists are by place in the order."""

    turn: Turn
    victims: Victims
    firsts_wait: bool
    rows: list[int]
    wants: list[int]
    slack_s: list[float]
    lead_s: list[float]
    shared_s: list[float]  # of the lead: what a group pays once
    surplus_s: list[float]  # least runway of a victim, for a first token

    def is_worth_waiting_for(self) -> bool:
        """Not where those who may leave now are enough, nor for whoever is past the bound."""
        ready_count = len(self.victims.rows)
        riding = min(self.wants.count(RIDE), self.victims.ahead_from)  # who is far ahead makes no room for riders
        asking = sum(want not in (NOTHING, RIDE) for want in self.wants) + riding - max(self.turn.ledger.slots, 0)
        if not ready_count or BOUND in self.wants:
            return False
        coming_s = ready_in(self.turn, self.firsts_wait)
        if self.firsts_wait:
            gather_s = GATHER_STEPS * self.turn.view.engine.step_s
            safe = self._safe_counts()
            if safe[-1] > 0:  # a few steps at most: somebody waits with nothing to read at all
                joining = sum(wait_s <= gather_s for wait_s in coming_s)
                is_better = (ready_count <= joining and ready_count < asking) or self._waits_less(safe)
                return is_better and self._dry_s(gather_s) <= 0.0
        if ready_count >= asking or not coming_s:
            return False
        return self._dry_s(coming_s[0]) < GATHER_ROTATIONS * self._lone_group_s()

    def _safe_counts(self) -> list[int]:
        """How many could be paused safely for first tokens now, in one step, in two, ...

        Whoever runs gains runway at every step, until all that is asked for can be had at once.
        """
        turn, costs = self.turn, self.turn.view.engine.costs
        step_s = turn.view.engine.step_s
        firsts = [place for place, want in enumerate(self.wants) if want == FIRST][:_MOST_PAIRS]
        pairs = sorted(zip(self.victims.runways_s, self.victims.rows, strict=True), key=lambda pair: -pair[0])
        runway_s = [runway_s for runway_s, _ in pairs[:_MOST_PAIRS]]
        rates = turn.view.rate_tok_s[[row for _, row in pairs[:_MOST_PAIRS]]]
        gain_s = (np.where(rates > 0.0, 1.0 / np.fmax(rates, MIN_RATE_TOK_S), 0.0) - step_s).tolist()
        counts = []
        for steps in range(GATHER_STEPS + 1):
            away_s = turn.tunables.safety_factor * costs.schedule_s + costs.prefill_fixed_s + self._first_run_s()
            count = 0
            for number, place in zip(range(len(runway_s)), firsts, strict=False):
                away_s += max(self.lead_s[place] - self.shared_s[place], costs.prefill_row_s)
                if runway_s[number] + steps * gain_s[number] < max(away_s, self.surplus_s[place]) - _EPSILON_S:
                    break
                count += 1
            counts.append(count)
        return counts

    def _waits_less(self, safe: list[int]) -> bool:
        """Whoever is left behind waits for a whole first run: does waiting a step or two cost all together less?"""
        firsts = self.wants.count(FIRST)
        behind_s = self._first_run_s() + self.turn.view.engine.costs.prefill_fixed_s
        step_s = self.turn.view.engine.step_s
        waits_s = [steps * step_s * safe[0] + (firsts - count) * behind_s for steps, count in enumerate(safe)]
        return min(waits_s) < waits_s[0]

    def _first_run_s(self) -> float:
        return self.turn.tunables.first_run_tokens * self.turn.view.engine.step_s

    def _dry_s(self, wait_s: float) -> float:
        """Seconds for which the paused readers who could come now would have nothing to read if they came later."""
        ready_count = len(self.victims.rows)
        fixed_s = self.turn.view.engine.costs.prefill_fixed_s
        total_s = 0.0
        for place, want in enumerate(self.wants):
            if want not in (FIRST, NOTHING) and ready_count > 0:
                ready_count -= 1
                late_s = wait_s + fixed_s + self.lead_s[place] - max(self.slack_s[place], 0.0)
                total_s += min(max(late_s, 0.0), wait_s)
        return total_s

    def _lone_group_s(self) -> float:
        """What a group of its own costs, in seconds of reading: the batch makes nothing while others come back."""
        engine = self.turn.view.engine
        rates = self.turn.view.rate_tok_s[self.rows]
        rates = rates[rates > 0.0]
        if not rates.size:
            return 0.0
        lost_tokens = self.turn.running.size * engine.costs.prefill_fixed_s / max(engine.step_s, 1e-4)
        return lost_tokens / max(float(rates.mean()), MIN_RATE_TOK_S)
