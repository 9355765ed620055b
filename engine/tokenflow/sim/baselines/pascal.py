"""PASCAL (arXiv 2602.11530): reasoning first, answers behind it, round robin within both.

A request that has shown nothing yet (it waits, or it reasons) ranks above one that answers; within each, whoever has
made 500 tokens goes behind the others. A reasoning request with more than 5,000 tokens of KV ranks with the answers.
One instance of it: the placement over several and the migration at the end of reasoning have nothing to choose from
here. Simplified: PASCAL's token pacer works on the client's side, where the simulator's readers pace themselves; KV of
whoever is preempted stays on the device while there is room and is swapped to the host otherwise.
"""

from dataclasses import dataclass

import numpy as np

from tokenflow.policy.plan import Plan
from tokenflow.policy.view import PREEMPTED, RUNNING
from tokenflow.sim.baselines.ranking import room_check_s, serve_ranked
from tokenflow.sim.scheduler import Look, StepRules, StepStyle

QUANTUM_TOKENS = 500
MOST_REASONING_KV_TOKENS = 5000
CHUNK_TOKENS = 8192


@dataclass(slots=True)
class _Round:
    """A request's place in its queue, and how much it had made when it got it."""

    place: int
    from_tokens: int
    is_answering: bool


class Pascal:
    """Keeps a place for each live request."""

    name = "pascal"

    def __init__(self, chunk_tokens: int = CHUNK_TOKENS) -> None:
        self.rules = StepRules(style=StepStyle.SEPARATE, chunk_tokens=chunk_tokens, uses_host=True, joins_decode=True)
        self._rounds: dict[str, _Round] = {}
        self._next_place = 0

    def decide(self, look: Look) -> Plan:
        """Runs reasoning requests, then answering ones."""
        view = look.view
        kept: dict[str, _Round] = {}
        for row, rid in enumerate(view.rids):
            kept[rid] = self._advanced(self._rounds.get(rid), int(look.made_tokens[row]), bool(view.is_started[row]))
        self._rounds = kept
        place = np.array([kept[rid].place for rid in view.rids])
        is_low = view.is_started | (view.context_tokens > MOST_REASONING_KV_TOKENS)
        return serve_ranked(view, np.lexsort((place, is_low)))

    def ask_again_s(self, look: Look, plan: Plan) -> float:
        """When somebody has used up its quantum, while somebody has no place."""
        view = look.view
        if not bool((view.state <= PREEMPTED).any()):
            return room_check_s(look)
        running = (view.state == RUNNING).nonzero()[0].tolist()
        used = [int(look.made_tokens[row]) - self._rounds[view.rids[row]].from_tokens for row in running]
        left_tokens = max(QUANTUM_TOKENS - max(used, default=0), 1)
        return min(look.now_s + left_tokens * view.engine.step_s, room_check_s(look))

    def _advanced(self, present: _Round | None, made_tokens: int, is_answering: bool) -> _Round:
        """Behind all others for who is new, begins to answer, or has used up its quantum."""
        if (
            present is not None
            and present.is_answering == is_answering
            and made_tokens - present.from_tokens < QUANTUM_TOKENS
        ):
            return present
        self._next_place += 1
        return _Round(self._next_place, made_tokens, is_answering)
