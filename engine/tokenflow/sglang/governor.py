"""Puts the policy to work in one scheduler: when it is asked, in which mode, and who carries out what it says."""

from typing import Any

from tokenflow.policy.states import Mode
from tokenflow.policy.tunables import Tunables
from tokenflow.sglang.actuator import Actuator
from tokenflow.sglang.blockers import find_blockers
from tokenflow.sglang.driver import PolicyDriver
from tokenflow.sglang.settings import PluginSettings
from tokenflow.sglang.snapshot import SnapshotBuilder
from tokenflow.sglang.tracker import RequestTracker

OBSERVE_DECISION_S = 1.0
IDLE_DECISION_S = 0.1  # with nobody waiting, decisions are about memory and copies to the host only


class Governor:
    """Bound to the scheduler of rank 0; runs on its thread."""

    def __init__(self, scheduler: Any, settings: PluginSettings) -> None:
        self.blockers = find_blockers(scheduler)
        self.mode = Mode.OBSERVE if settings.mode is Mode.ENFORCE and self.blockers else settings.mode
        self.tracker = RequestTracker()
        self.builder = SnapshotBuilder(self.tracker)
        self.driver = PolicyDriver(scheduler, self.tracker, Tunables(mode=self.mode, variant=settings.variant))
        self.actuator = Actuator(scheduler, self.tracker)
        self._scheduler = scheduler
        self._next_decision_s = 0.0

    @property
    def is_enforcing(self) -> bool:
        return self.mode is Mode.ENFORCE

    def set_mode(self, mode: Mode) -> None:
        """Takes effect at the next turn. Streams that are paused come back by themselves: they are in the queue."""
        self.mode = mode
        self.actuator.forget()
        if mode is Mode.OFF:
            self.tracker.clear()

    def on_step(self, batch: Any, now_s: float) -> None:
        self.driver.steps.take(batch, now_s)

    def turn(self, now_s: float) -> None:
        """Once per turn of the scheduler's loop, before it chooses the next batch."""
        self.actuator.forget()
        self.driver.kv.poll(now_s)
        if not self.is_enforcing:
            return
        if not self._scheduler.waiting_queue and now_s < self._next_decision_s:
            return
        self._next_decision_s = now_s + IDLE_DECISION_S
        self.builder.reconcile(self._scheduler, now_s)
        self.actuator.carry_out(self.driver.decide(now_s))
        self.driver.kv.poll(now_s)  # what was just written is acknowledged before the scheduler looks

    def explain(self, now_s: float) -> None:
        """Every row's terms of the last decision, for telemetry. While observing this is when the policy is asked.

        Once a second then: observing must cost next to nothing.
        """
        if self.is_enforcing:
            self.driver.explain_rows()
        elif now_s >= self._next_decision_s:
            self._next_decision_s = now_s + OBSERVE_DECISION_S
            self.driver.decide(now_s)
            self.driver.explain_rows()

    def keeps_kv(self, req: Any) -> bool:
        """Whether the KV of a request that SGLang takes out is worth keeping: it is to come back."""
        return req.finished_reason is None and req.to_finish is None and not req.skip_radix_cache_insert

    def retraction_order(self, order: list[int], reqs: list[Any]) -> list[int]:
        """SGLang pops from the end: the longest runway there, requests without reader after all readers."""
        entries = self.tracker.requests

        def runway_s(index: int) -> float:
            entry = entries.get(reqs[index].rid)
            runway = entry.stream.buffer.runway_s if entry is not None else None
            return float("inf") if runway is None else runway

        return sorted(order, key=runway_s)
