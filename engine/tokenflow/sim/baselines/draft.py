"""A baseline's answer while it is made: slots and pages that are left, and the changes so far."""

import math

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.carry import Carry
from tokenflow.policy.plan import Action, Cause, Decision, Plan, Release
from tokenflow.policy.states import Reason
from tokenflow.policy.view import LOADING, PREEMPTED, PREFILLING, RUNNING, WAITING, View

Rows = NDArray[np.intp]

_REASONS = {
    Action.ADMIT: Reason.ADMITTED,
    Action.RESUME: Reason.RUNNING_STARVING,
    Action.RESUME_LOAD: Reason.LOADING,
    Action.RESUME_RECOMPUTE: Reason.RECOMPUTING,
}


class Draft:
    """`slots` and `free_tokens` are what starts may still take.

    Free is what the engine has free, less what those who hold a slot already have yet to allocate for their prompts.
    Pages of whoever is paused here count as free at once: the engine lets a start wait for a copy under way.
    """

    def __init__(self, view: View, *, uses_host: bool = False) -> None:
        self.view = view
        self.running: Rows = (view.state == RUNNING).nonzero()[0]
        arriving = ((view.state == PREFILLING) | (view.state == LOADING)).nonzero()[0]
        self.holding: Rows = np.concatenate([self.running, arriving])
        self.slots = int(view.engine.slots_free)
        self.free_tokens = float(view.engine.kv_free_tokens) - sum(map(self.need_tokens, arriving.tolist()))
        self.host_tokens = float(view.engine.host_free_tokens)
        self.pauses: list[Decision] = []
        self.starts: list[Decision] = []
        self._releases: list[Release] = []
        self.released: set[int] = set()
        self._blocked: list[int] = []
        self._uses_host = uses_host

    @property
    def seekers(self) -> Rows:
        """Who waits or is paused, in order of arrival."""
        view = self.view
        rows = (view.state <= PREEMPTED).nonzero()[0]
        return rows[np.lexsort((view.serial[rows], view.arrival_s[rows]))]

    def need_tokens(self, row: int) -> float:
        """Pages, in tokens, that a row has yet to get before it makes its next token."""
        view = self.view
        context, held = view.context_tokens.item(row), view.kv_device_tokens.item(row)
        return max(self.pages(context + 1.0) - self.pages(held), 0.0)

    def pages(self, tokens: float) -> float:
        """Rounded up to whole pages."""
        page = self.view.engine.page_tokens
        return float(math.ceil(tokens / page) * page)

    def growth_tokens(self, steps: int) -> float:
        """Pages, in tokens, that those who run allocate in so many steps."""
        page, context = self.view.engine.page_tokens, self.view.context_tokens[self.running]
        return float((np.ceil((context + steps) / page) - np.ceil(context / page)).sum() * page)

    def fits(self, row: int, reserve_tokens: float = 0.0) -> bool:
        """A slot and pages are there, with `reserve_tokens` to spare."""
        return self.slots > 0 and self.need_tokens(row) + reserve_tokens <= self.free_tokens

    def start(self, row: int, cause: Cause = Cause.FREE_PLACE) -> None:
        """A waiting or paused row gets a slot. Raises AssertionError where there is none."""
        assert self.slots > 0
        self.slots -= 1
        self.free_tokens -= self.need_tokens(row)
        action = self._start_action(row)
        self.starts.append(Decision(self.view.rids[row], row, action, _REASONS[action], cause))

    def start_in_order(self, rows: Rows, reserve_tokens: float = 0.0) -> None:
        """Starts rows one by one until the first that does not fit: it holds up those behind it."""
        for row in rows.tolist():
            if not self.fits(row, reserve_tokens):
                self.block(row)
                return
            self.start(row)

    def block(self, row: int) -> None:
        """A row is passed over: for want of pages, if slots are left."""
        if self.slots > 0:
            self._blocked.append(row)

    def pause(self, row: int, action: Action, cause: Cause = Cause.SHARE) -> None:
        """A row that holds a slot leaves it; unless its KV is kept, its pages count as free."""
        reason = Reason.PREEMPTED_KV_FULL if cause is Cause.KV_FULL else Reason.PREEMPTED_PRIORITY
        self.pauses.append(Decision(self.view.rids[row], row, action, reason, cause))
        self.slots += 1
        if self.view.state.item(row) != RUNNING:
            self.free_tokens += self.need_tokens(row)  # it allocates no more
        if action is Action.PAUSE_OFFLOAD:
            self.host_tokens -= min(self.unwritten_tokens(row), self.host_tokens)
        if action is not Action.PAUSE_KEEP:
            self.free_tokens += self.pages(self.view.kv_device_tokens.item(row))
        self.running = self.running[self.running != row]
        self.holding = self.holding[self.holding != row]

    def unwritten_tokens(self, row: int) -> float:
        """KV that only the device has."""
        return float(self.view.kv_device_tokens.item(row) - self.view.kv_both_tokens.item(row))

    def host_takes(self, row: int) -> bool:
        """The host has room for what only the device has of it."""
        return self._uses_host and self.unwritten_tokens(row) <= self.host_tokens

    def release(self, row: int) -> None:
        """A paused row's device copy makes room: written to the host before, or given up where that has no room."""
        held, written = self.view.kv_device_tokens.item(row), 0.0
        if self.host_takes(row):
            written = self.unwritten_tokens(row)
            self.host_tokens -= written
        self.released.add(row)
        self._releases.append(Release(self.view.rids[row], row, int(held), int(written)))
        self.free_tokens += self.pages(held)

    def plan(self) -> Plan:
        """What has been decided."""
        return Plan(
            Carry(now_s=self.view.engine.now_s),
            tuple(self.pauses),
            tuple(self.starts),
            (),
            tuple(self._releases),
            tuple(self._blocked),
        )

    def _start_action(self, row: int) -> Action:
        view = self.view
        if view.state.item(row) == WAITING:
            return Action.ADMIT
        device = view.kv_device_tokens.item(row)
        if device >= view.context_tokens.item(row):
            return Action.RESUME
        is_on_host = self._uses_host and view.kv_host_tokens.item(row) > device
        return Action.RESUME_LOAD if is_on_host else Action.RESUME_RECOMPUTE
