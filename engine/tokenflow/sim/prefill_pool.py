"""A second GPU that computes prompts and hands their KV over (DistServe). It has a clock of its own."""

from dataclasses import dataclass

import numpy as np

from tokenflow.policy.states import RequestState
from tokenflow.sim.performance import StepWork
from tokenflow.sim.readers import deliver
from tokenflow.sim.state import EngineState
from tokenflow.sim.streams import Stream
from tokenflow.sim.transfers import Direction

_INFINITY = float("inf")


@dataclass(slots=True)
class _Part:
    stream: Stream
    new_tokens: int
    is_last: bool


class PrefillPool:
    """Takes `EngineState.pool_queue` in order. Its own memory is not bounded: it holds a prompt for a moment only.

    The first token goes out when the prompt is computed; then the KV moves over the link into the decoding pool.
    """

    def __init__(self, state: EngineState) -> None:
        self.ended: list[Stream] = []  # who asked for no more than the first token
        self._state = state
        self._done_tokens: dict[str, int] = {}
        self._step: list[_Part] = []
        self._step_end_s = _INFINITY
        self._handing_over: list[Stream] = []  # computed, and without pages in the decoding pool yet

    @property
    def next_event_s(self) -> float:
        """When its present step ends; inf while it idles."""
        return self._step_end_s

    def advance(self) -> None:
        """Everything up to the engine's present moment."""
        state = self._state
        while True:
            if not self._step:
                self._begin(state.now_s)
            if self._step_end_s > state.now_s:
                break
            end_s = self._step_end_s
            self._finish(end_s)
            self._begin(end_s)
        self._hand_over()

    def _begin(self, now_s: float) -> None:
        state, streams = self._state, self._state.streams
        budget = state.rules.chunk_tokens
        pair_count = 0.0
        state.pool_queue[:] = [stream for stream in state.pool_queue if stream.is_live]
        for stream in state.pool_queue:
            if budget <= 0:
                break
            done = self._done_tokens.get(stream.rid, 0)
            target = streams.value(stream, "prompt_tokens") + streams.value(stream, "made_tokens")
            new = min(target - done, budget)
            budget -= new
            pair_count += new * (done + (new + 1) / 2)
            self._step.append(_Part(stream, new, done + new == target))
        if not self._step:
            self._step_end_s = _INFINITY
            return
        new_tokens = sum(part.new_tokens for part in self._step)
        work = StepWork(piece_count=len(self._step), new_tokens=new_tokens, pair_count=pair_count)
        self._step_end_s = now_s + state.performance.step_s(work) + state.settings.step_overhead_s

    def _finish(self, end_s: float) -> None:
        state, streams = self._state, self._state.streams
        for part in self._step:
            stream = part.stream
            if not stream.is_live:
                self._done_tokens.pop(stream.rid, None)
                continue
            self._done_tokens[stream.rid] = self._done_tokens.get(stream.rid, 0) + part.new_tokens
            if not part.is_last:
                continue
            del self._done_tokens[stream.rid]
            state.pool_queue.remove(stream)
            rows = np.array([stream.row], np.intp)
            deliver(streams, rows, np.array([end_s]), has_hidden=stream.request.hidden_tokens > 0)
            streams.column("made_tokens")[rows] += 1
            stream.times.add(end_s)
            state.ask()
            if streams.value(stream, "made_tokens") == stream.request.output_tokens:
                self.ended.append(stream)
            else:
                streams.set_state(stream, RequestState.LOADING, end_s)
                self._handing_over.append(stream)
        self._step = []

    def _hand_over(self) -> None:
        """In order, as pages come free."""
        state, streams = self._state, self._state.streams
        while self._handing_over:
            stream = self._handing_over[0]
            if not stream.is_live:
                self._handing_over.pop(0)
                continue
            context = streams.value(stream, "prompt_tokens") + streams.value(stream, "made_tokens") - 1
            if state.memory.most_growth_tokens(0) < context:
                break
            self._handing_over.pop(0)
            state.memory.resize(0, context)
            streams.column("kv_device_tokens")[stream.row] = context

            def arrived(stream: Stream = stream) -> None:
                if stream.is_live:
                    streams.set_state(stream, RequestState.RUNNING, state.now_s)
                    stream.times.open(state.decode_times)
                    state.changed_batch()

            byte_count = context * state.performance.kv_bytes_per_token
            state.transfers.submit(Direction.H2D, byte_count, arrived, is_awaited=True)
