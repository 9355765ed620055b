"""One turn of the simulated engine: a step with prefill in it, or as many decode steps as nothing happens in."""

from dataclasses import dataclass

import numpy as np

from tokenflow.policy.states import RequestState
from tokenflow.policy.step_meter import FEW_STEPS, MeasuredStep, StepMeter
from tokenflow.sim.batch import DecodeBatch
from tokenflow.sim.performance import StepWork
from tokenflow.sim.readers import deliver
from tokenflow.sim.scheduler import StepStyle
from tokenflow.sim.settings import LoadOverlap
from tokenflow.sim.state import EngineState
from tokenflow.sim.streams import Stream
from tokenflow.sim.transfers import Direction, Job


@dataclass(slots=True)
class Piece:
    """New tokens of one stream that a step computes, after a prefix that is there."""

    stream: Stream
    new_tokens: int
    prefix_tokens: int
    is_last: bool  # it makes a token in this step


class Stepper:
    """Moves the clock. `ended` collects those who have made their last token."""

    def __init__(self, state: EngineState, meter: StepMeter) -> None:
        self.batch = DecodeBatch(state)
        self.ended: list[Stream] = []
        self._state = state
        self._meter = meter
        self._unmeasured_count = FEW_STEPS

    def step(self, until_s: float) -> bool:
        """One step with prefill, or decode steps up to the first that ends at `until_s` or later. False: nothing
        can be computed now."""
        batch, state = self.batch, self._state
        if state.settings.load_overlap is LoadOverlap.NONE and state.transfers.is_busy:
            state.now_s = max(state.now_s, state.transfers.run_dry())
        if state.rules.joins_decode:
            self._join()
        batch.refresh()
        is_mixed = state.rules.style is StepStyle.MIXED
        decoding = batch.size if is_mixed and batch.most_steps() else 0
        if state.filling:
            loads: list[Job] = []
            pieces = self._pieces(decoding, loads)
            if pieces:
                self._prefill_step(pieces, decoding, loads)
                return True
        steps = batch.most_steps() if batch.size else 0
        if not steps:
            return False
        # A load that has begun in this very call is no event yet that the engine knows of.
        self._decode_steps(steps, min(until_s, state.transfers.next_awaited_s()))
        return True

    def _join(self) -> None:
        """Resumed streams whose KV has come decode with the others from now on."""
        state, streams = self._state, self._state.streams
        for stream in list(state.filling):
            is_there = streams.value(stream, "kv_device_tokens") >= streams.value(stream, "context_tokens")
            is_loaded = not stream.must_load and (stream.load is None or stream.load.is_done)
            if is_there and is_loaded and streams.value(stream, "made_tokens"):
                state.filling.remove(stream)
                stream.load = None
                streams.set_state(stream, RequestState.RUNNING, state.now_s)
                stream.times.open(state.decode_times)
                state.changed_batch()

    def _pieces(self, decoding: int, loads: list[Job]) -> list[Piece]:
        """What the next step computes of those who hold a slot and do not decode yet, in order."""
        state, streams, memory = self._state, self._state.streams, self._state.memory
        budget = state.rules.chunk_tokens - decoding
        reserve = self.batch.growth_tokens(1) if decoding else 0
        pieces: list[Piece] = []
        for stream in state.filling:
            if budget <= 0 or (stream.must_load and not self._begin_load(stream, reserve)):
                break
            if stream.load is not None and not stream.load.is_done:
                if state.settings.load_overlap is LoadOverlap.AHEAD or state.rules.joins_decode:
                    continue
                loads.append(stream.load)
            held = streams.value(stream, "kv_device_tokens")
            target = streams.value(stream, "prompt_tokens") + streams.value(stream, "made_tokens")
            new = min(target - held, budget, memory.most_growth_tokens(held, reserve))
            if new <= 0:
                break
            memory.resize(held, held + new)
            streams.column("kv_device_tokens")[stream.row] = held + new
            pieces.append(Piece(stream, new, held, held + new == target))
            budget -= new
        return pieces

    def _begin_load(self, stream: Stream, reserve: int) -> bool:
        """False: the pages for it are not free yet."""
        state, streams, memory = self._state, self._state.streams, self._state.memory
        held, on_host = streams.value(stream, "kv_device_tokens"), streams.value(stream, "kv_host_tokens")
        context = streams.value(stream, "prompt_tokens") + streams.value(stream, "made_tokens") - 1
        tokens = min(on_host, context) - held
        if memory.most_growth_tokens(held, reserve) < tokens:
            return False
        stream.must_load = False
        if tokens > 0:
            memory.resize(held, held + tokens)
            streams.column("kv_device_tokens")[stream.row] = held + tokens
            byte_count = tokens * state.performance.kv_bytes_per_token
            streams.column("switch_bytes")[stream.row] += byte_count
            stream.load = state.transfers.submit(Direction.H2D, byte_count, state.ask, is_awaited=True)
        return True

    def _prefill_step(self, pieces: list[Piece], decoding: int, loads: list[Job]) -> None:
        state, batch, streams = self._state, self.batch, self._state.streams
        new_tokens = sum(piece.new_tokens for piece in pieces)
        work = StepWork(
            decode_batch=decoding,
            decode_kv_tokens=batch.kv_tokens if decoding else 0.0,
            piece_count=len(pieces),
            new_tokens=new_tokens,
            pair_count=sum(p.new_tokens * (p.prefix_tokens + (p.new_tokens + 1) / 2) for p in pieces),
        )
        state.has_just_mixed = state.rules.keeps_mixed and decoding > 0
        begin_s = state.now_s
        if loads and state.settings.load_overlap is LoadOverlap.NONE:
            state.now_s, loads = max(state.now_s, state.transfers.run_until_done(loads)), []
        step_s = state.performance.step_s(work) * self._slowdown_ratio + state.settings.step_overhead_s
        state.now_s += step_s
        state.transfers.advance(state.now_s)
        if loads:
            state.now_s = max(state.now_s, state.transfers.run_until_done(loads))
        step_s = state.now_s - begin_s
        prompts = sum(p.new_tokens for p in pieces if not streams.value(p.stream, "pause_count"))
        decoded_kv_tokens = int(work.decode_kv_tokens)
        measured = MeasuredStep(True, len(pieces), 0, new_tokens, prompts / new_tokens, decoding, decoded_kv_tokens)
        self._meter.take(measured, step_s, state.now_s)
        if decoding:
            batch.made(np.array([state.now_s]))
        self._made([piece.stream for piece in pieces if piece.is_last])
        if decoding and batch.has_ended:
            self._collect_ended()

    def _made(self, done: list[Stream]) -> None:
        """These have all of their KV, and have made a token with it."""
        state, streams = self._state, self._state.streams
        if not done:
            return
        rows = np.array([stream.row for stream in done], np.intp)
        deliver(streams, rows, np.array([state.now_s]), has_hidden=bool(streams.column("hidden_tokens")[rows].any()))
        streams.column("made_tokens")[rows] += 1
        for stream in done:
            state.filling.remove(stream)
            stream.load = None
            streams.set_state(stream, RequestState.RUNNING, state.now_s)
            stream.times.add(state.now_s)
            if streams.value(stream, "made_tokens") == streams.value(stream, "output_tokens"):
                self.ended.append(stream)
            else:
                stream.times.open(state.decode_times)
        state.changed_batch()

    def _decode_steps(self, steps: int, until_s: float) -> None:
        state, batch = self._state, self.batch
        state.has_just_mixed = False
        slowdown_ratio = self._slowdown_ratio
        if slowdown_ratio != 1.0:
            steps = 1  # until the copies are through
        kv_sums = batch.kv_sums(steps)
        each_s = state.performance.decode_steps_s(batch.size, kv_sums) * slowdown_ratio
        each_s += state.settings.step_overhead_s
        times_s = state.now_s + np.cumsum(each_s)
        steps = min(int(np.searchsorted(times_s, until_s, side="left")) + 1, steps)
        times_s = times_s[:steps]
        state.now_s = float(times_s[-1])
        # The live engine's meter hears of every step. While it knows nothing a few of them must do, then the last.
        for index in range(max(steps - self._unmeasured_count, 0), steps - 1):
            self._measure(kv_sums[index], each_s[index], times_s[index])
        self._measure(kv_sums[steps - 1], each_s[steps - 1], times_s[steps - 1])
        self._unmeasured_count = max(self._unmeasured_count - steps, 0)
        batch.made(times_s)
        state.transfers.advance(state.now_s)
        if batch.has_ended:
            self._collect_ended()

    def _measure(self, kv_tokens: float, step_s: float, now_s: float) -> None:
        self._meter.take(MeasuredStep(False, self.batch.size, int(kv_tokens)), float(step_s), float(now_s))

    def _collect_ended(self) -> None:
        streams, rows = self._state.streams, self.batch.rows
        left = streams.column("output_tokens")[rows] - streams.column("made_tokens")[rows]
        self.ended.extend(streams.rows[row] for row in rows[left == 0].tolist())

    @property
    def _slowdown_ratio(self) -> float:
        """By how much the next step is slower for copies that run beside it."""
        ratio = self._state.link.interference_ratio
        return ratio if self._state.transfers.is_busy else 1.0
