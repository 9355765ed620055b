"""The discrete-event engine: arrivals, steps, copies and clients that leave, in order, until all is done."""

import heapq
from collections.abc import Callable, Iterable, Iterator

from tokenflow.policy.cadence import IDLE_DECISION_S
from tokenflow.policy.carry import Carry
from tokenflow.policy.plan import Action, Plan
from tokenflow.policy.view import PREEMPTED, PREFILLING, RUNNING
from tokenflow.quality.goodput import GoodputLimits
from tokenflow.sim import readers
from tokenflow.sim.actuator import Actuator
from tokenflow.sim.faults import fault
from tokenflow.sim.gauge import TAIL_QUANTILE, Gauge
from tokenflow.sim.memory import Memory
from tokenflow.sim.performance import Link, PerformanceModel
from tokenflow.sim.prefill_pool import PrefillPool
from tokenflow.sim.records import Clerk
from tokenflow.sim.scheduler import Look, Scheduler, StepStyle
from tokenflow.sim.settings import EngineSettings
from tokenflow.sim.state import EngineState
from tokenflow.sim.stepper import Stepper
from tokenflow.sim.streams import Stream
from tokenflow.sim.token_times import FLUSH_COUNT
from tokenflow.sim.transfers import Transfers
from tokenflow.sim.workload import SimRequest

_MOST_IDLE_TURNS = 1000  # decisions at one moment without anything moving: the run cannot go on
_MOST_IDLE_S = 120.0  # the same with the clock going on, while requests are there
_INFINITY = float("inf")

OnPlan = Callable[[float, Look, Plan], None]
OnProgress = Callable[[int, float], None]


class SimEngine:
    """One engine and one scheduler over one workload. `run` once."""

    def __init__(
        self,
        scheduler: Scheduler,
        performance: PerformanceModel,
        settings: EngineSettings,
        *,
        link: Link | None = None,
        ttft_target_s: float = 1.0,
        limits: GoodputLimits | None = None,
        tail_quantile: float = TAIL_QUANTILE,
        on_plan: OnPlan | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        link = link or performance.link
        self.clerk = Clerk(ttft_target_s=ttft_target_s, limits=limits or GoodputLimits())
        self.gauge = Gauge(performance, link, tail_quantile)
        rules = scheduler.rules
        self.state = EngineState(
            settings=settings,
            rules=rules,
            performance=performance,
            link=link,
            memory=Memory(settings.kv_tokens, settings.host_tokens, settings.page_tokens),
            transfers=Transfers(link, self.gauge.copied),
        )
        self.decision_count = 0
        self.rejected_count = 0
        self._scheduler = scheduler
        self._actuator = Actuator(self.state)
        self._stepper = Stepper(self.state, self.gauge.meter)
        assert not (rules.has_prefill_pool and rules.style is StepStyle.MIXED), "a pool of its own needs no mixed steps"
        self._pool = PrefillPool(self.state) if rules.has_prefill_pool else None
        self._carry = Carry()
        self._ask_again_s = 0.0
        self._last_step_s = 0.0
        self._arrived_count = 0
        self._next: SimRequest | None = None
        self._leaving: list[tuple[float, int, Stream]] = []
        self._on_plan = on_plan
        self._on_progress = on_progress

    def run(self, requests: Iterable[SimRequest]) -> None:
        """`requests` in order of arrival. Raises SimulationError where the run cannot go on."""
        source = iter(requests)
        self._next = next(source, None)
        state, idle_turns = self.state, 0
        while self._next is not None or len(state.streams):
            before_s = state.now_s
            state.transfers.advance(state.now_s)
            self._advance_pool()
            self._take_arrivals(source)
            self._let_go()
            if self._must_ask():
                self._decide()
            has_stepped = self._stepper.step(self._next_event_s())
            for stream in self._stepper.ended:
                self._end(stream, is_aborted=False)
            self._stepper.ended.clear()
            if has_stepped:
                self._last_step_s = state.now_s
            else:
                self._wait()
            idle_turns = idle_turns + 1 if state.now_s == before_s else 0
            if idle_turns > _MOST_IDLE_TURNS:
                raise fault(f"nothing moves any more at {state.now_s:.3f} s; {self._standing()}")
            self.clerk.series.take(state)
            if state.decode_times.count > FLUSH_COUNT:
                self._flush_times()
        state.transfers.run_dry()
        self._check_books()

    def _take_arrivals(self, source: Iterator[SimRequest]) -> None:
        state = self.state
        while self._next is not None and self._next.arrival_s <= state.now_s:
            request = self._next
            self._arrived_count += 1
            stream = state.streams.add(f"r{self._arrived_count:06d}", request)
            if request.prompt_tokens + request.output_tokens >= state.memory.kv_total_tokens:
                self.rejected_count += 1  # as engines do with what can never fit
                self._end(stream, is_aborted=True)
            elif request.leaves_s is not None:
                heapq.heappush(self._leaving, (request.arrival_s + request.leaves_s, self._arrived_count, stream))
            self.gauge.costs.observe_arrival(state.now_s)
            state.must_decide = True
            self._next = next(source, None)
            if self._next is None or self._next.arrival_s > state.now_s:
                self.clerk.note_demand(state)

    def _let_go(self) -> None:
        """Clients that have gone away."""
        while self._leaving and self._leaving[0][0] <= self.state.now_s:
            stream = heapq.heappop(self._leaving)[2]
            if stream.is_live:
                self._end(stream, is_aborted=True)

    def _advance_pool(self) -> None:
        if self._pool is None:
            return
        self._pool.advance()
        for stream in self._pool.ended:
            self._end(stream, is_aborted=False)
        self._pool.ended.clear()

    def _decide(self) -> None:
        state = self.state
        readers.advance(state.streams, state.now_s)
        state.streams.sync()
        state.streams.column("may_pause")[:] = not state.has_just_mixed
        look = self._look()
        plan = self._scheduler.decide(look)
        self._carry = plan.carry
        self.decision_count += 1
        state.must_decide = False
        if self._on_plan is not None:
            self._on_plan(state.now_s, look, plan)
        self._ask_again_s = state.now_s if state.has_just_mixed else self._scheduler.ask_again_s(look, plan)
        self._actuator.carry_out(plan)
        self._advance_pool()
        state.must_decide = False  # what the plan itself has changed is no news

    def _must_ask(self) -> bool:
        """What has happened matters to whoever waits or is paused; without them only time and memory count."""
        state = self.state
        if state.must_decide:
            if bool((state.streams.column("state") <= PREEMPTED).any()):
                return True
            state.must_decide = False
        return state.now_s >= self._ask_again_s or self._is_nearly_full()

    def _look(self) -> Look:
        state = self.state
        return Look(
            view=state.streams.view(self.gauge.engine_view(state), self._carry),
            prompt_tokens=state.streams.column("prompt_tokens"),
            made_tokens=state.streams.column("made_tokens"),
            pause_count=state.streams.column("pause_count"),
            performance=state.performance,
        )

    def _is_nearly_full(self) -> bool:
        """Those who run could not take the step in flight and the next one."""
        self._stepper.batch.refresh()
        return self._stepper.batch.growth_tokens(2) > self.state.memory.kv_free_tokens

    def _next_event_s(self) -> float:
        """Until when decode steps may go on without a look."""
        state = self.state
        until_s = min(self._ask_again_s, state.transfers.next_awaited_s())
        if self._next is not None:
            until_s = min(until_s, self._next.arrival_s)
        if self._leaving:
            until_s = min(until_s, self._leaving[0][0])
        if self._pool is not None:
            until_s = min(until_s, self._pool.next_event_s)
        return until_s

    def _wait(self) -> None:
        """Nothing can be computed: on to the next event, or make room where the pool is full."""
        state = self.state
        if not len(state.streams):
            if self._next is not None:
                state.now_s = max(self._next.arrival_s, state.now_s)
                self._last_step_s = state.now_s
            return
        if state.must_decide:
            return
        if state.has_just_mixed:  # now they are merged
            state.has_just_mixed, state.must_decide = False, True
            return
        is_full = bool(self._stepper.batch.size or state.filling)
        if is_full and state.transfers.next_awaited_s() == _INFINITY:
            self._retract()
            return
        # It is asked before every step, and there is none: now and then is enough until something happens.
        self._ask_again_s = max(self._ask_again_s, state.now_s + IDLE_DECISION_S)
        until_s = self._next_event_s()
        is_long = state.now_s - self._last_step_s > _MOST_IDLE_S and state.transfers.next_awaited_s() == _INFINITY
        if until_s == _INFINITY or (until_s == self._ask_again_s and is_long):
            raise fault(f"nobody runs and nothing will happen at {state.now_s:.3f} s; {self._standing()}")
        state.now_s = max(until_s, state.now_s)

    def _retract(self) -> None:
        """The pool is full and the scheduler has made no room: the latest arrival is taken out (vLLM)."""
        state, streams = self.state, self.state.streams
        state.streams.sync()
        codes = streams.column("state")
        rows = (((codes == RUNNING) | (codes == PREFILLING)) & (streams.column("kv_device_tokens") > 0)).nonzero()[0]
        if not rows.size:
            paused = ((codes == PREEMPTED) & (streams.column("kv_device_tokens") > 0)).nonzero()[0]
            raise fault(f"the pool is full of {paused.size} paused requests' KV; {self._standing()}")
        latest = max((streams.rows[row] for row in rows.tolist()), key=lambda one: (one.request.arrival_s, one.rid))
        state.counts.forced_count += 1
        self._actuator.pause(latest, Action.PAUSE_DROP)

    def _end(self, stream: Stream, *, is_aborted: bool) -> None:
        state, streams = self.state, self.state.streams
        for queue in (state.filling, state.pool_queue):
            if stream in queue:
                queue.remove(stream)
        stream.times.close(state.decode_times)
        held = streams.value(stream, "kv_device_tokens")
        if streams.state(stream) == RUNNING:
            held = streams.value(stream, "prompt_tokens") + max(streams.value(stream, "made_tokens") - 1, 0)
        state.memory.resize(held, 0)
        state.memory.give_host(streams.value(stream, "host_taken_tokens"))
        self.clerk.close(state, stream, is_aborted=is_aborted)
        self.gauge.costs.observe_release(state.now_s)
        stream.is_live = False
        streams.remove(stream)
        state.changed_batch()
        if self._on_progress is not None:
            self._on_progress(len(self.clerk.records), state.now_s)

    def _flush_times(self) -> None:
        """Whoever runs takes its own copy, so that memory grows with live requests only."""
        state = self.state
        running = [state.streams.rows[row] for row in (state.streams.column("state") == RUNNING).nonzero()[0].tolist()]
        for stream in running:
            stream.times.close(state.decode_times)
        state.decode_times.clear()
        for stream in running:
            stream.times.open(state.decode_times)

    def _standing(self) -> str:
        codes = self.state.streams.column("state").tolist()
        return (
            f"{len(codes)} live requests in states {sorted(set(codes))}, {self.state.memory.kv_free_tokens} tokens free"
        )

    def _check_books(self) -> None:
        """Every token that was asked for was made, and no page is lost."""
        assert self.state.memory.is_all_free, "KV pages are lost"
        assert len(self.clerk.records) == self._arrived_count
        for record in self.clerk.records:
            made = record.figures.token_count + min(record.hidden_tokens, record.made_tokens)
            assert made == record.made_tokens, record
            assert record.is_aborted or record.made_tokens == record.asked_tokens, record
