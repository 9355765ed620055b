"""Puts the policy to work in one scheduler: when it is asked, in which mode, and what its plan means for the engine."""

from collections.abc import Iterable
from typing import Any

from tokenflow.policy.plan import Action, Plan
from tokenflow.policy.states import Mode, Reason, RequestState
from tokenflow.policy.tunables import Tunables
from tokenflow.sglang.actuator import Actuator
from tokenflow.sglang.blockers import find_blockers
from tokenflow.sglang.directive import DeviceRelease, Directive, WriteUpTo
from tokenflow.sglang.driver import PolicyDriver
from tokenflow.sglang.settings import PluginSettings
from tokenflow.sglang.snapshot import SnapshotBuilder
from tokenflow.sglang.tracker import RequestTracker

OBSERVE_DECISION_S = 1.0
IDLE_DECISION_S = 0.1  # with nobody waiting, decisions are about memory and copies to the host only
WRITE_GRAIN_TOKENS = 16  # a shorter piece waits: each one is a node of the tree, and every look-up passes all of them


class Governor:
    """Bound to the scheduler of rank 0; runs on its thread. `actuator` is that rank's own."""

    def __init__(self, scheduler: Any, settings: PluginSettings, actuator: Actuator) -> None:
        self.blockers = find_blockers(scheduler)
        self.mode = Mode.OBSERVE if settings.mode is Mode.ENFORCE and self.blockers else settings.mode
        self.tracker = RequestTracker()
        self.builder = SnapshotBuilder(self.tracker)
        self.driver = PolicyDriver(
            scheduler, self.tracker, Tunables(mode=self.mode, variant=settings.variant), actuator.kept
        )
        self.actuator = actuator
        self._scheduler = scheduler
        self._sequence = 0
        self._reasons: dict[str, Reason] = {}
        self._next_decision_s = 0.0

    @property
    def is_enforcing(self) -> bool:
        """What is wished. What is in force is the actuator's: it changes with the next directive."""
        return self.mode is Mode.ENFORCE

    def set_mode(self, mode: Mode) -> None:
        """Takes effect at the next turn. Streams that are paused come back by themselves: they are in the queue."""
        self.mode = mode
        self._next_decision_s = 0.0
        if mode is Mode.OFF:
            self.tracker.clear()

    def stop_enforcing(self, blocker: str) -> None:
        """Enforcing has proved impossible with this engine, and stays so until it starts anew."""
        if blocker not in self.blockers:
            self.blockers.append(blocker)
        if self.is_enforcing:
            self.set_mode(Mode.OBSERVE)

    def on_step(self, batch: Any, now_s: float) -> None:
        self.driver.steps.take(batch, now_s)

    def decide(self, now_s: float) -> Directive | None:
        """Once per turn of the scheduler's loop. None: nothing is to be carried out."""
        if self.mode is not Mode.OFF:
            self.driver.kv.poll(now_s)
        if not self.is_enforcing:
            return self._directive() if self.actuator.mode is not self.mode else None
        if not self._scheduler.waiting_queue and now_s < self._next_decision_s:
            return None
        self._next_decision_s = now_s + IDLE_DECISION_S
        self.builder.reconcile(self._scheduler, now_s)
        plan = self.driver.decide(now_s)
        self._reasons = {decision.rid: decision.reason for decision in plan.pauses}
        return self._order(plan)

    def note(self, paused: Iterable[Any], now_s: float) -> None:
        """These were taken out by the last directive."""
        for req in paused:
            entry = self.tracker.requests.get(req.rid)
            if entry is not None:
                entry.stream.state = RequestState.PREEMPTED
                entry.stream.reason = self._reasons.get(req.rid, Reason.PREEMPTED_SURPLUS)
                entry.stream.preemption_count = req.retraction_count
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

    def _order(self, plan: Plan) -> Directive:
        starts = tuple(decision.rid for decision in plan.starts)
        started, known = set(starts), self.tracker.requests
        return self._directive(
            pauses=tuple(decision.rid for decision in plan.pauses),
            releases=self._releases(plan),
            writes=self._writes(plan),
            starts=starts,
            recomputes=tuple(d.rid for d in plan.starts if d.action is Action.RESUME_RECOMPUTE),
            held_back=tuple(
                req.rid for req in self._scheduler.waiting_queue if req.rid in known and req.rid not in started
            )
            + tuple(decision.rid for decision in plan.pauses if decision.rid not in started),
            retraction_order=self._retraction_order(),
        )

    def _directive(self, **orders: Any) -> Directive:
        self._sequence += 1
        return Directive(self._sequence, self.mode, **orders)

    def _releases(self, plan: Plan) -> tuple[DeviceRelease, ...]:
        """What the host has or will have is freed when it is there; the rest only where the plan gives it up."""
        found = []
        for release in plan.releases:
            entry = self.tracker.requests.get(release.rid)
            if entry is None:
                continue
            both = self.actuator.kept.copies(entry.req).both_tokens if release.rid in self.actuator.kept else 0
            found.append(DeviceRelease(release.rid, release.tokens, release.tokens > both + release.write_tokens))
        return tuple(found)

    def _writes(self, plan: Plan) -> tuple[WriteUpTo, ...]:
        """Absolute positions: a rank must not add to what it has."""
        found = []
        page = max(self._scheduler.page_size, WRITE_GRAIN_TOKENS)
        for write in plan.writes:
            entry = self.tracker.requests.get(write.rid)
            if entry is None:
                continue
            kept = entry.req.kv.cache_protected_len
            up_to = min(kept + write.tokens, entry.req.owned_kv_len()) // self._scheduler.page_size
            up_to *= self._scheduler.page_size
            if up_to - kept >= page:
                found.append(WriteUpTo(write.rid, up_to))
        return tuple(found)

    def _retraction_order(self) -> tuple[str, ...]:
        """The longest runway last, requests without reader after all readers."""

        def runway_s(rid: str) -> float:
            runway = self.tracker.requests[rid].stream.buffer.runway_s
            return float("inf") if runway is None else runway

        batches = (self._scheduler.running_batch, self._scheduler.last_batch)
        rids = {req.rid for batch in batches if batch is not None for req in batch.reqs}
        return tuple(sorted(sorted(rids & self.tracker.requests.keys()), key=runway_s))
