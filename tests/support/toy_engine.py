"""A closed loop for `plan`: slots that make tokens at a fixed speed, a KV pool, and readers with virtual buffers.

It checks at every step what no plan may break: slots, memory, legal transitions.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from tokenflow.policy.buffer import VirtualBuffer
from tokenflow.policy.carry import Carry
from tokenflow.policy.costs import Costs
from tokenflow.policy.plan import Action, Decision, Plan
from tokenflow.policy.planner import plan
from tokenflow.policy.states import RequestState
from tokenflow.policy.table import RequestTable
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.view import EngineView, RequestView, View

S = RequestState


@dataclass
class Stream:
    rid: str
    arrival_s: float
    rate_tok_s: float
    prompt_tokens: int = 20
    output_tokens: int = 10**6
    buffer: VirtualBuffer = field(init=False)
    state: RequestState = S.WAITING
    ready_s: float = 0.0
    since_s: float = 0.0
    made: float = 0.0
    run_tokens: float = 0.0
    runs: int = 0
    device: int = 0
    host: int = 0
    both: int = 0
    ttft_s: float | None = None
    ended_s: float | None = None
    times: list[float] = field(default_factory=list)

    def __post_init__(self):
        self.buffer = VirtualBuffer(self.rate_tok_s)
        self.since_s = self.arrival_s

    @property
    def context(self) -> int:
        return self.prompt_tokens + int(self.made)


class ToyEngine:
    def __init__(
        self, streams, *, slots, tok_s, tunables=None, costs=None, swap_s=0.0, step_s=0.025, kv_tokens=10**9,
        host_tokens=10**9, capacity_tok_s=None, kv_bytes=0.0,
    ):  # fmt: skip
        self.waiting_to_come = sorted(streams, key=lambda stream: stream.arrival_s)
        self.streams = {stream.rid: stream for stream in streams}
        self.table = RequestTable()
        self.tunables = tunables or Tunables()
        self.costs = costs or Costs(schedule_s=step_s, prefill_fixed_s=0.0, prefill_s_per_token=0.0)
        self.slots, self.tok_s, self.step_s, self.swap_s = slots, tok_s, step_s, swap_s
        self.kv_tokens, self.host_tokens, self.kv_bytes = kv_tokens, host_tokens, kv_bytes
        self.capacity_tok_s = capacity_tok_s
        self.carry = Carry()
        self.on_view = None  # sees every view that is decided on
        self.now_s = 0.0
        self.held: set[str] = set()
        self.steps = 0
        self.log: list[tuple[float, Decision]] = []
        self.counts: Counter[str] = Counter()

    def hold(self, rid, is_held):
        """An operator's pause, or the end of it."""
        self.held = self.held | {rid} if is_held else self.held - {rid}

    def run_until(self, end_s):
        while self.now_s < end_s - 1e-9:
            self.step()
        return self

    def step(self):
        while self.waiting_to_come and self.waiting_to_come[0].arrival_s <= self.now_s + 1e-9:
            stream = self.waiting_to_come.pop(0)
            self.table.add(RequestView(stream.rid, arrival_s=stream.arrival_s))
        self._fill_table()
        view = self.view()
        if self.on_view is not None:
            self.on_view(view)
        decided = plan(view, self.tunables)
        self.carry = decided.carry
        self._carry_out(decided, view)
        self._make_tokens()
        self.steps += 1
        self.now_s = self.steps * self.step_s

    def view(self) -> View:
        live = [self.streams[rid] for rid in self.table._rids]
        holders = sum(s.state in (S.RUNNING, S.PREFILLING, S.LOADING) for s in live)
        engine = EngineView(
            now_s=self.now_s, slot_count=self.slots, slots_free=self.slots - holders, kv_total_tokens=self.kv_tokens,
            kv_free_tokens=self.kv_tokens - sum(s.device for s in live), kv_bytes_per_token=self.kv_bytes,
            host_total_tokens=self.host_tokens, host_free_tokens=self.host_tokens - sum(s.host for s in live),
            step_s=self.step_s, capacity_tok_s=self.capacity_tok_s, costs=self.costs,
        )  # fmt: skip
        return self.table.view(engine, self.carry)

    def _fill_table(self):
        for rid in list(self.table._rids):
            stream = self.streams[rid]
            stream.buffer.advance(self.now_s)
            self.table.add(
                RequestView(
                    rid, state=stream.state, arrival_s=stream.arrival_s, since_s=stream.since_s,
                    rate_tok_s=stream.rate_tok_s, unread_tokens=stream.buffer.unread_tokens or 0.0,
                    dry_s=stream.buffer.dry_s, is_started=stream.ttft_s is not None, run_tokens=stream.run_tokens,
                    is_first_run=stream.runs <= 1, context_tokens=stream.context,
                    remaining_tokens=stream.output_tokens - stream.made, length_tokens=stream.output_tokens,
                    kv_device_tokens=stream.device, kv_host_tokens=stream.host, kv_both_tokens=stream.both,
                    is_held=rid in self.held,
                )
            )  # fmt: skip

    def _carry_out(self, decided: Plan, view: View):
        changed = [decision.rid for decision in decided.decisions]
        assert len(changed) == len(set(changed)), "one change a request"
        for decision in decided.decisions:
            assert view.rids[decision.row] == decision.rid
            self.log.append((self.now_s, decision))
            self.counts[decision.cause] += decision.action.is_pause
        for decision in decided.pauses:
            self._pause(self.streams[decision.rid], decision)
        for release in decided.releases:
            stream = self.streams[release.rid]
            assert stream.state is S.PREEMPTED
            assert release.tokens <= stream.device
            stream.host += release.write_tokens
            stream.device -= release.tokens
            stream.both = max(stream.both - (release.tokens - release.write_tokens), 0)
        for write in decided.writes:
            stream = self.streams[write.rid]
            if stream.state is S.RUNNING:
                stream.host = min(stream.host + write.tokens, stream.device)
                stream.both = stream.host
        for decision in decided.starts:
            self._start(self.streams[decision.rid], decision)
        holders = [s for s in self.streams.values() if s.state in (S.RUNNING, S.PREFILLING, S.LOADING)]
        assert len(holders) <= self.slots, "slots"
        assert sum(s.device for s in self.streams.values()) <= self.kv_tokens, "memory"
        assert sum(s.host for s in self.streams.values()) <= self.host_tokens, "host memory"

    def _pause(self, stream, decision):
        assert stream.state is S.RUNNING
        stream.state, stream.since_s = S.PREEMPTED, self.now_s
        if decision.action is Action.PAUSE_OFFLOAD:
            stream.host, stream.device, stream.both = stream.context, 0, 0
        elif decision.action is Action.PAUSE_DROP:
            stream.device, stream.host, stream.both = 0, stream.both, 0

    def _start(self, stream, decision):
        assert stream.state in (S.WAITING, S.PREEMPTED)
        stream.state = S.PREFILLING if decision.action is Action.ADMIT else S.LOADING
        if decision.action is Action.RESUME_LOAD:
            stream.both = stream.host
        elif decision.action is not Action.RESUME:
            stream.host = stream.both = 0
        stream.device = stream.context
        stream.ready_s = stream.since_s = self.now_s + (self.swap_s if self.log[-1][1] else 0.0)
        stream.run_tokens, stream.runs = 0.0, stream.runs + 1

    def _make_tokens(self):
        end_s = (self.steps + 1) * self.step_s
        for stream in list(self.streams.values()):
            if stream.state in (S.PREFILLING, S.LOADING) and stream.ready_s <= self.now_s + 1e-9:
                stream.state, stream.since_s = S.RUNNING, self.now_s
            if stream.state is not S.RUNNING:
                continue
            before = stream.context
            stream.made += self.tok_s * self.step_s
            stream.run_tokens += self.tok_s * self.step_s
            stream.device += stream.context - before
            stream.buffer.deliver(end_s, int(stream.made + 1e-6))
            stream.times += [end_s] * (int(stream.made + 1e-6) - len(stream.times))
            if stream.ttft_s is None and stream.made >= 1.0 - 1e-6:
                stream.ttft_s = end_s - stream.arrival_s
            if stream.made >= stream.output_tokens:
                stream.state, stream.ended_s = S.FINISHED, end_s
                stream.buffer.end(end_s)
                stream.device = stream.host = stream.both = 0
                self.table.remove(stream.rid)

    @property
    def stall_s(self) -> float:
        for stream in self.streams.values():
            stream.buffer.advance(self.now_s)
        return sum(stream.buffer.stall_s for stream in self.streams.values())

    def pauses(self):
        return [(round(at, 3), d.rid) for at, d in self.log if d.action.is_pause]

    def with_tunables(self, **changes):
        self.tunables = replace(self.tunables, **changes)
        return self
