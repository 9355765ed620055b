"""Andes, version 2 (arXiv 2404.16283): who is served is a knapsack of QoE gained for each token of KV, and every
exchange must pay for its overhead.

At each decision, while not everybody fits: for some batch sizes B between the largest that still decodes faster than
the fastest reader and the most that memory holds, requests are ranked by (QoE if served at that speed - QoE if not) /
context length, and the B best that fit are the candidate; the B with the greatest sum wins. Then joins and leaves are
let through pair by pair, best first, while the net change (gain, less what the leaver loses, less the stall that the
join's prefill causes everybody else, on top of those let through before) is above zero. Preemption by swap or by
recompute, whichever a profile finds cheaper for a usual context; KV leaves the device only for others' KV, not for a
slot.

Simplified: B is searched on a grid of eight, decisions are `interval_s` apart (1 s in the port of TokenFlow's
authors), the horizon is fixed, and a reader's lag is followed with even reading between decisions.
"""

import math
from collections.abc import Collection

import numpy as np

from tokenflow.policy.costs import prefill_s, restores
from tokenflow.policy.plan import Action, Cause, Plan
from tokenflow.policy.tunables import Restore
from tokenflow.policy.view import PREEMPTED
from tokenflow.sim.baselines.andes_qoe import Readers, ReadingBook
from tokenflow.sim.baselines.draft import Draft
from tokenflow.sim.baselines.ranking import room_check_s
from tokenflow.sim.performance import Floats, StepWork
from tokenflow.sim.scheduler import Look, StepRules, StepStyle

INTERVAL_S = 1.0
CHUNK_TOKENS = 8192
HORIZON_S = 10.0
HEADROOM_STEPS = 16  # of growth that is kept free, so that a copy to the host ends in time
_BATCH_SIZES = 8


class Andes:
    """`swaps` False: preempted KV is dropped and computed again, as in TokenFlow's port of it."""

    name = "andes"

    def __init__(
        self,
        chunk_tokens: int = CHUNK_TOKENS,
        *,
        ttft_target_s: float = 1.0,
        swaps: bool = True,
        interval_s: float = INTERVAL_S,
        horizon_s: float = HORIZON_S,
    ) -> None:
        self.rules = StepRules(StepStyle.SEPARATE, chunk_tokens, uses_host=swaps, joins_decode=True)
        self._swaps = swaps
        self._pause = Action.PAUSE_OFFLOAD if swaps else Action.PAUSE_DROP
        self._interval_s = interval_s
        self._horizon_s = horizon_s
        self._book = ReadingBook(ttft_target_s)
        self._next_s = 0.0

    def decide(self, look: Look) -> Plan:
        """First come, first served while all fit or between decisions; else the knapsack."""
        view, draft = look.view, Draft(look.view, uses_host=self._swaps)
        readers = self._book.readers(view, np.where(view.is_started, look.made_tokens, 0).astype(np.float64))
        seekers = draft.seekers
        growth = draft.growth_tokens(HEADROOM_STEPS)
        if draft.growth_tokens(HEADROOM_STEPS // 2) > draft.free_tokens:
            self._release_kept(draft, growth, ())
            if draft.running.size > 1:
                self._relieve(look, draft, readers, growth)
            return draft.plan()
        if not seekers.size:
            return draft.plan()
        needs = sum(map(draft.need_tokens, seekers.tolist()))
        is_tight = seekers.size > draft.slots or needs + growth > draft.free_tokens
        if is_tight and look.now_s >= self._next_s:
            self._next_s = look.now_s + self._interval_s
            self._choose(look, draft, readers)
        else:
            draft.start_in_order(seekers, growth)
        return draft.plan()

    def ask_again_s(self, look: Look, plan: Plan) -> float:
        """At the next interval, while somebody wants a place, and before memory is full."""
        wants = bool((look.view.state <= PREEMPTED).any())
        return min(self._next_s if wants else math.inf, room_check_s(look))

    def _relieve(self, look: Look, draft: Draft, readers: Readers, growth: float) -> None:
        """Memory is about to be full: whoever loses least leaves. One always stays."""
        view, rows = look.view, draft.running
        tok_s = 1.0 / look.performance.step_s(StepWork(rows.size, float(view.context_tokens[rows].sum())))
        gain = readers.served(self._horizon_s, tok_s, np.zeros(len(view))) - readers.waiting(self._horizon_s)
        for row in rows[np.lexsort((-view.serial[rows], gain[rows]))].tolist()[:-1]:
            if growth <= draft.free_tokens:
                break
            draft.pause(row, self._pause, Cause.KV_FULL)

    def _choose(self, look: Look, draft: Draft, readers: Readers) -> None:
        lead_s = self._lead_s(look, draft)
        waiting = readers.waiting(self._horizon_s)
        best: tuple[float, list[int], Floats] | None = None
        for size in self._batch_sizes(look, readers):
            rows, gain = self._pack(look, draft, readers, waiting, lead_s, size)
            total = float(gain[rows].sum())
            if best is None or total > best[0]:
                best = (total, rows, gain)
        assert best is not None
        self._exchange(draft, readers, best[1], best[2], lead_s)

    def _lead_s(self, look: Look, draft: Draft) -> Floats:
        """Seconds until each would make a token, if it were served from now on."""
        view, lead_s = look.view, np.zeros(len(look.view))
        seekers = draft.seekers
        paused = seekers[view.state[seekers] == PREEMPTED]
        fresh = seekers[view.state[seekers] < PREEMPTED]
        lead_s[fresh] = prefill_s(view, fresh)
        way = Restore.AUTO if self._swaps else Restore.RECOMPUTE
        lead_s[paused] = restores(view, paused, way).lead_s
        return lead_s

    def _batch_sizes(self, look: Look, readers: Readers) -> list[int]:
        """A grid between Andes' two bounds."""
        view = look.view
        context = np.sort(view.context_tokens)
        most = int(np.searchsorted(np.cumsum(context + 1.0), view.engine.kv_total_tokens, side="right"))
        most = max(min(most, view.engine.slot_count, len(view)), 1)
        fastest = float(readers.rate_tok_s.max())
        mean = float(context.mean())
        least = most
        while least > 1 and 1.0 / look.performance.step_s(StepWork(least, least * mean)) < fastest:
            least = least * 3 // 4
        return sorted({round(value) for value in np.linspace(max(least, 1), most, _BATCH_SIZES)}, reverse=True)

    def _pack(
        self, look: Look, draft: Draft, readers: Readers, waiting: Floats, lead_s: Floats, size: int
    ) -> tuple[list[int], Floats]:
        """The `size` best by gain for each token of context, as far as they fit; and everybody's gain."""
        view = look.view
        mean = float(view.context_tokens.mean())
        tok_s = 1.0 / look.performance.step_s(StepWork(size, size * mean))
        gain = readers.served(self._horizon_s, tok_s, lead_s) - waiting
        context = np.maximum(view.context_tokens, 1.0)
        room = view.engine.kv_total_tokens - draft.growth_tokens(HEADROOM_STEPS)
        rows: list[int] = []
        for row in np.lexsort((view.serial, -gain / context)).tolist():
            if len(rows) >= size:
                break
            tokens = draft.pages(context[row] + 1.0)
            if tokens <= room:
                room -= tokens
                rows.append(row)
        return rows, gain

    def _exchange(self, draft: Draft, readers: Readers, chosen: list[int], gain: Floats, lead_s: Floats) -> None:
        """The refiner: joins, each with the leaves that make its room, while the net change is above zero."""
        view = draft.view
        wanted = set(chosen)
        joins = [row for row in chosen if view.state[row] <= PREEMPTED]
        leaves = [row for row in draft.running.tolist() if row not in wanted]
        joins.sort(key=lambda row: -gain[row])
        leaves.sort(key=lambda row: gain[row])
        growth = draft.growth_tokens(HEADROOM_STEPS)
        spent_s = 0.0  # by the joins so far: whoever stays has lived on its text for so long already
        for row in joins:
            kept = sum(draft.pages(view.kv_device_tokens.item(other)) for other in self._kept(draft, wanted))
            victims, cost = self._victims(draft, row, leaves, gain, growth - kept)
            if victims is None:
                continue
            stays = np.setdiff1d(draft.running, np.array(victims, np.intp))
            stall_s = float(lead_s[row]) if self._computes(draft, row) else 0.0
            before, after = (readers.stalled(self._horizon_s, s)[stays] for s in (spent_s, spent_s + stall_s))
            if gain[row] - cost - float((after - before).sum()) <= 0.0:
                break
            spent_s += stall_s
            self._release_kept(draft, growth + draft.need_tokens(row), wanted)
            for victim in victims:
                lacks_room = draft.free_tokens < growth + draft.need_tokens(row)
                draft.pause(victim, self._pause if lacks_room or not self._swaps else Action.PAUSE_KEEP)
                leaves.remove(victim)
            draft.start(row, Cause.SHARE if victims else Cause.FREE_PLACE)

    def _release_kept(self, draft: Draft, needed_tokens: float, wanted: Collection[int]) -> None:
        """KV that paused streams keep on the device goes before anybody is taken out for its room, the latest first."""
        for row in self._kept(draft, wanted)[::-1]:
            if draft.free_tokens >= needed_tokens:
                return
            draft.release(row)

    def _kept(self, draft: Draft, wanted: Collection[int]) -> list[int]:
        """Paused streams with KV on the device that the host could take, in order of arrival."""
        rows = draft.seekers[draft.view.kv_device_tokens[draft.seekers] > 0].tolist()
        gone = draft.released.union(wanted)
        return [row for row in rows if row not in gone and (draft.host_takes(row) or not self._swaps)]

    def _computes(self, draft: Draft, row: int) -> bool:
        """Whether it takes a prefill step to start; what is loaded or still there stalls nobody."""
        view = draft.view
        there = max(view.kv_device_tokens.item(row), view.kv_host_tokens.item(row) if self._swaps else 0.0)
        return there < view.context_tokens.item(row)

    def _victims(
        self, draft: Draft, row: int, leaves: list[int], gain: Floats, growth: float
    ) -> tuple[list[int] | None, float]:
        """The fewest leaves, cheapest first, that let `row` in, and what they lose; None where they do not suffice."""
        slots, free, cost = draft.slots, draft.free_tokens - growth - draft.need_tokens(row), 0.0
        victims: list[int] = []
        for victim in leaves:
            if slots > 0 and free >= 0.0:
                break
            if self._swaps and free < 0.0 and not draft.host_takes(victim):
                continue
            victims.append(victim)
            slots += 1
            free += draft.pages(draft.view.kv_device_tokens.item(victim))
            cost += float(gain[victim])
        return (victims if slots > 0 and free >= 0.0 else None), cost
