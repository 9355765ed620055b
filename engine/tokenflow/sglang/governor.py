"""Puts the policy to work in one scheduler: when it is asked, in which mode, and what its plan means for the engine."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tokenflow.counters import Phase
from tokenflow.events import EventKind
from tokenflow.policy.cadence import IDLE_DECISION_S, WRITE_GRAIN_TOKENS
from tokenflow.policy.plan import Action, Plan
from tokenflow.policy.states import Mode, Reason, RequestState
from tokenflow.policy.tunables import Tunables, check
from tokenflow.sglang.actuator import Actuator
from tokenflow.sglang.blockers import find_blockers
from tokenflow.sglang.directive import DeviceRelease, Directive, WriteUpTo
from tokenflow.sglang.driver import PolicyDriver
from tokenflow.sglang.event_log import EventLog, SwapEvents
from tokenflow.sglang.settings import PluginSettings
from tokenflow.sglang.snapshot import SnapshotBuilder
from tokenflow.sglang.tracker import RequestTracker, TrackedRequest
from tokenflow.wire import Capacity

OBSERVE_DECISION_S = 1.0
HELD_NAP_MS = 50  # between two looks while nobody may run: every request is held
_IDLE_STEPS = 32  # as many steps as may lie between two looks, on a fast GPU


class Governor:
    """Bound to the scheduler of rank 0; runs on its thread. `actuator` is that rank's own."""

    def __init__(self, scheduler: Any, settings: PluginSettings, actuator: Actuator) -> None:
        self.blockers = find_blockers(scheduler)
        self.tracker = RequestTracker(max_backlog_tokens=settings.max_backlog_tokens)
        self.builder = SnapshotBuilder(self.tracker)
        tunables = _first_tunables(settings, self.blockers)
        self.driver = PolicyDriver(scheduler, self.tracker, tunables, actuator.kept, settings.priors)
        self.actuator = actuator
        self.revision = 0  # counts changes of the tunables
        self.events = EventLog()
        kv = self.driver.kv
        self._swaps = SwapEvents(self.events, kv.bytes_per_token, has_host_pool=kv.has_host_pool)
        self._was_overloaded = False
        self._to_release: set[str] = set()  # held, and their KV has not been told to leave the device yet
        self._scheduler = scheduler
        self._sequence = 0
        self._next_decision_s = 0.0
        self._turn_capacity: Capacity | None = None

    @property
    def is_enforcing(self) -> bool:
        """What is wished. What is in force is the actuator's: it changes with the next directive."""
        return self.mode is Mode.ENFORCE

    @property
    def mode(self) -> Mode:
        return self.driver.tunables.mode

    @property
    def tunables(self) -> Tunables:
        """All that are in force."""
        return self.driver.tunables

    def apply(self, tunables: Tunables, who: str | None = None, reason: str | None = None) -> None:
        """Takes effect at the next turn.

        Streams that are paused when enforcing ends come back by themselves: they are in SGLang's queue, and nobody
        holds them any more.
        """
        assert tunables.mode is not Mode.ENFORCE or not self.blockers, "what an option rules out is refused before"
        before = self.driver.tunables
        if tunables == before:
            return
        self.driver.tunables = tunables
        self.tracker.default_rate_tok_s = tunables.default_rate_tok_s
        self.revision += 1
        self.events.note_tuned(before, tunables, who)
        if tunables.mode is not before.mode:
            self._note_mode(before.mode, who, reason)
            self._next_decision_s = 0.0
            if tunables.mode is Mode.OFF:
                self.tracker.clear()

    def _note_mode(self, before: Mode, who: str | None, reason: str | None) -> None:
        terms: dict[str, int] = {}
        if before is Mode.ENFORCE:
            entries = self.tracker.requests.values()
            terms["paused_count"] = sum(entry.stream.state is RequestState.PREEMPTED for entry in entries)
            terms["unheld_count"] = self._let_all_go()
        self.events.note(EventKind.MODE, None, reason, who, {"old": before.value, "new": self.mode.value, **terms})

    def _let_all_go(self) -> int:
        held = [entry for entry in self.tracker.requests.values() if entry.is_held]
        for entry in held:
            entry.is_held = False
            self.events.note(EventKind.UNHELD, entry.stream.rid, terms={"state": entry.stream.state.value})
        return len(held)

    def hold(self, entry: TrackedRequest) -> None:
        """From the next decision on it does not run."""
        entry.is_held = True
        self._to_release.add(entry.stream.rid)

    def is_held(self, rid: str) -> bool:
        """By an operator, or because its client does not take what was made for it."""
        entry = self.tracker.requests.get(rid)
        return entry is not None and entry.is_kept_out

    @property
    def only_held_wait(self) -> bool:
        """Nobody runs, and whoever waits is held: there is nothing that the engine could do."""
        scheduler = self._scheduler
        if not self.is_enforcing or not scheduler.waiting_queue or not scheduler.is_fully_idle(ignore_waiting=True):
            return False
        return all(self.is_held(req.rid) for req in scheduler.waiting_queue)

    def stop_enforcing(self, blocker: str) -> None:
        """Enforcing has proved impossible with this engine, and stays so until it starts anew."""
        if blocker not in self.blockers:
            self.blockers.append(blocker)
        if self.is_enforcing:
            self.apply(replace(self.tunables, mode=Mode.OBSERVE), reason=blocker)

    def on_step(self, batch: Any, now_s: float) -> None:
        self.driver.stamps.take(batch, now_s)

    def reconcile(self, now_s: float) -> Capacity:
        """Every request's state and their sums, once in a turn: telemetry and the decision are of the same moment."""
        if self._turn_capacity is None:
            self._turn_capacity = self.builder.reconcile(self._scheduler, now_s)
        return self._turn_capacity

    def end_turn(self) -> None:
        """From here on SGLang changes what was looked at."""
        self._turn_capacity = None

    def decide(self, now_s: float) -> Directive | None:
        """Once per turn of the scheduler's loop. None: nothing is to be carried out."""
        if self.mode is not Mode.OFF:
            self.driver.kv.poll(now_s)
        if not self.is_enforcing:
            return self._directive() if self.actuator.mode is not self.mode else None
        if not self._scheduler.waiting_queue and now_s < self._next_decision_s and not self._is_room_short():
            return None
        self._next_decision_s = now_s + IDLE_DECISION_S
        self.reconcile(now_s)
        self._swaps.retracted(self.builder.take_retracted(), now_s)
        if self.only_held_wait:
            self._nap()
        plan = self.driver.decide(now_s)
        self._note_overload()
        self._swaps.decided(plan.pauses, self.tracker.requests)
        return self._order(plan)

    def _is_room_short(self) -> bool:
        """Whether the pool may be full before the next look. SGLang would take streams out by itself then, by its own
        order and one after the other."""
        scheduler = self._scheduler
        rows = len(scheduler.running_batch.reqs) if scheduler.running_batch else 0
        free_tokens = scheduler.token_to_kv_pool_allocator.available_size() + scheduler.tree_cache.evictable_size()
        return bool(free_tokens < rows * max(scheduler.page_size, _IDLE_STEPS))

    def note(self, paused: Iterable[Any], now_s: float) -> None:
        """These were taken out by the last directive."""
        for req in paused:
            entry = self.tracker.requests.get(req.rid)
            if entry is not None:
                entry.stream.state = RequestState.PREEMPTED
                entry.stream.reason = self._swaps.paused(entry, now_s) or Reason.PREEMPTED_SURPLUS
                entry.stream.preemption_count = req.retraction_count
                self.tracker.counters.add_preemption(entry.stream.class_name, entry.stream.reason)
        self.driver.kv.poll(now_s)  # what was just written is acknowledged before the scheduler looks

    def note_resumed(self, now_s: float) -> None:
        """Right after SGLang's admission, while its requests still say where their KV came from."""
        known = self.tracker.requests
        entries = [known[req.rid] for req in self.actuator.resumed if req.rid in known]
        for entry in entries:
            if entry.paused_since_s is not None:
                self.tracker.counters.observe_transition(Phase.PAUSED, now_s - entry.paused_since_s)
        self._swaps.resumed(entries, now_s)

    def note_released(self) -> None:
        """After the actuator has gone on with what is to leave the device."""
        for rid, tokens in self.actuator.kept.take_freed().items():
            self._swaps.released(rid, tokens)

    def _nap(self) -> None:
        """SGLang's loop sleeps only when nothing waits. With `--sleep-on-idle` an operator's pause must not cost a
        core; new requests and commands wake it."""
        poller = getattr(self._scheduler.idle_sleeper, "poller", None)
        if poller is not None:
            poller.poll(HELD_NAP_MS)

    def _note_overload(self) -> None:
        """Only of decisions that are carried out."""
        is_overloaded = self.driver.is_overloaded
        if is_overloaded is not self._was_overloaded:
            self._was_overloaded = is_overloaded
            kind = EventKind.OVERLOAD_ENTERED if is_overloaded else EventKind.OVERLOAD_LEFT
            buffers = [entry.stream.buffer for entry in self.tracker.requests.values()]
            demand_tok_s = sum(buffer.rate_tok_s or 0.0 for buffer in buffers if buffer.has_reader)
            terms = {"demand_tok_s": round(demand_tok_s, 3), "capacity_tok_s": self.driver.capacity_tok_s}
            self.events.note(kind, terms=terms)

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
            releases=self._releases(plan) + self._held_releases(),
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
        found, kept = [], self.actuator.kept
        for release in plan.releases:
            entry = self.tracker.requests.get(release.rid)
            if entry is None:
                continue
            # Some of them run still, and are among this plan's pauses.
            is_paused = release.rid in kept
            both = kept.copies(entry.req).both_tokens if is_paused else kept.written_tokens(entry.req)
            found.append(DeviceRelease(release.rid, release.tokens, release.tokens > both + release.write_tokens))
        return tuple(found)

    def _held_releases(self) -> tuple[DeviceRelease, ...]:
        """What an operator has paused leaves the device, if the host has room: nobody knows for how long."""
        if not self._to_release or not self.driver.kv.has_host_pool:
            return ()
        found = []
        for rid in [rid for rid in self._to_release if rid in self.actuator.kept or not self.is_held(rid)]:
            self._to_release.discard(rid)
            if self.is_held(rid):
                copies = self.actuator.kept.copies(self.tracker.requests[rid].req)
                found.append(DeviceRelease(rid, copies.device_tokens - copies.shared_tokens))
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
        """Whom SGLang takes out last comes first: as the policy has it, those far ahead, then the shortest runway, and
        requests without reader after all readers."""
        ahead = self.driver.far_ahead_rids()

        def nearness(rid: str) -> tuple[bool, float]:
            entry = self.tracker.requests[rid]
            runway_s = None if entry.is_blocked else entry.stream.buffer.runway_s
            if rid in ahead and runway_s is not None:
                return False, -runway_s
            return True, float("inf") if runway_s is None else runway_s

        batches = (self._scheduler.running_batch, self._scheduler.last_batch)
        rids = {req.rid for batch in batches if batch is not None for req in batch.reqs}
        return tuple(sorted(sorted(rids & self.tracker.requests.keys()), key=nearness))


def _first_tunables(settings: PluginSettings, blockers: list[str]) -> Tunables:
    """Those of the engine's start. `enforce` becomes `observe` where an option rules it out: `blockers` say why."""
    tunables, problems = check(settings.all_tunables(), Tunables())
    if problems:
        raise ValueError("; ".join(problem.message for problem in problems))
    if tunables.mode is Mode.ENFORCE and blockers:
        return replace(tunables, mode=Mode.OBSERVE)
    return tunables
