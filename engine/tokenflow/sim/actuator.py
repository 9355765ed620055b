"""Carries out a plan: pauses, releases, starts and copies to the host."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.cadence import WRITE_GRAIN_TOKENS
from tokenflow.policy.plan import Action, Decision, Plan, Release, Write
from tokenflow.policy.states import RequestState
from tokenflow.policy.view import LOADING, PREEMPTED, PREFILLING, RUNNING, WAITING
from tokenflow.sim.faults import fault
from tokenflow.sim.scheduler import StepStyle
from tokenflow.sim.state import EngineState
from tokenflow.sim.streams import Stream
from tokenflow.sim.transfers import Direction


class Actuator:
    """Columns are in step with what was made when this is called (`Streams.sync`)."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._bytes_per_token = state.performance.kv_bytes_per_token

    def carry_out(self, plan: Plan) -> None:
        """Raises SimulationError for what no engine could do."""
        rows = self._state.streams.rows
        for decision in plan.pauses:
            self._check(decision, rows[decision.row])
            self.pause(rows[decision.row], decision.action)
        for release in plan.releases:
            self._release(rows[release.row], release)
        for decision in plan.starts:
            self._check(decision, rows[decision.row])
            self._start(rows[decision.row], decision)
        if plan.writes and self._state.rules.uses_host:
            self._write(plan.writes)

    def pause(self, stream: Stream, action: Action) -> None:
        """It leaves its slot; its KV stays, is written to the host and freed, or is dropped."""
        state, streams = self._state, self._state.streams
        assert streams.state(stream) in (RUNNING, PREFILLING, LOADING)
        if stream in state.filling:
            state.filling.remove(stream)
        stream.times.close(state.decode_times)
        stream.must_load = False
        streams.set_state(stream, RequestState.PREEMPTED, state.now_s, is_new_run=True)
        streams.column("pause_count")[stream.row] += 1
        state.counts.pause_count += 1
        state.changed_batch()
        if action is Action.PAUSE_OFFLOAD and state.rules.uses_host:
            self._leave_device(stream, 0, self._unwritten(stream))
        elif action is not Action.PAUSE_KEEP:
            self._shrink(stream, 0)

    def _check(self, decision: Decision, stream: Stream) -> None:
        streams = self._state.streams
        code = streams.state(stream)
        if stream.rid != decision.rid:
            raise fault(f"the plan takes row {decision.row} for {decision.rid}, it is {stream.rid}")
        if decision.action.is_pause != (code in (RUNNING, PREFILLING)):
            raise fault(f"the plan has {decision.action} for {stream.rid} in state {code}")
        if not decision.action.is_pause:
            if (decision.action is Action.ADMIT) != (code == WAITING):
                raise fault(f"the plan has {decision.action} for {stream.rid} in state {code}")
            if self._state.holder_count >= self._state.settings.slot_count:
                raise fault(f"the plan starts {stream.rid}, and no slot is free")

    def _start(self, stream: Stream, decision: Decision) -> None:
        state, streams = self._state, self._state.streams
        made = streams.value(stream, "made_tokens")
        held, context = streams.value(stream, "kv_device_tokens"), streams.value(stream, "context_tokens")
        stream.release_to = None  # what leaves the device at this moment stays after all
        stream.run_count += 1
        streams.column("run_start_tokens")[stream.row] = made
        streams.column("is_first_run")[stream.row] = stream.run_count <= 1
        on_host = streams.value(stream, "kv_host_tokens")
        stream.must_load = decision.action is Action.RESUME_LOAD and on_host > held
        reached = max(held, min(on_host, context)) if stream.must_load else held
        state.counts.load_count += stream.must_load
        if made and reached < context:
            state.counts.recompute_count += 1
            state.counts.recomputed_tokens += context - reached
            stream.recompute_count += 1
        if made and held >= context and (state.rules.style is StepStyle.MIXED or state.rules.joins_decode):
            streams.set_state(stream, RequestState.RUNNING, state.now_s, is_new_run=True)
            stream.times.open(state.decode_times)
        else:
            kind = RequestState.LOADING if stream.must_load else RequestState.PREFILLING
            streams.set_state(stream, kind, state.now_s, is_new_run=True)
            is_elsewhere = state.rules.has_prefill_pool and held < context + (not made)
            (state.pool_queue if is_elsewhere else state.filling).append(stream)
        state.changed_batch()

    def _release(self, stream: Stream, release: Release) -> None:
        """From its end; what the host lacks is written first, unless the plan gives it up."""
        streams = self._state.streams
        if streams.state(stream) != PREEMPTED:
            return
        held = streams.value(stream, "kv_device_tokens")
        keep = max(held - release.tokens, 0)
        has_copy = min(held, streams.value(stream, "host_taken_tokens"))
        may_give_up = release.tokens > has_copy + release.write_tokens
        self._leave_device(stream, keep, release.write_tokens if may_give_up else self._unwritten(stream))

    def _unwritten(self, stream: Stream) -> int:
        streams = self._state.streams
        return max(streams.value(stream, "kv_device_tokens") - streams.value(stream, "host_taken_tokens"), 0)

    def _leave_device(self, stream: Stream, keep_tokens: int, write_tokens: int) -> None:
        """Device KV beyond `keep_tokens` is freed once `write_tokens` more (what the host has room for) are there."""
        state = self._state
        written = min(write_tokens, self._unwritten(stream), state.memory.host_free_tokens)
        on_host = state.streams.value(stream, "kv_host_tokens")
        if not written and on_host >= state.streams.value(stream, "host_taken_tokens"):
            self._shrink(stream, keep_tokens)
            return
        stream.release_to = keep_tokens if stream.release_to is None else min(stream.release_to, keep_tokens)
        self._copy_to_host(np.array([stream.row], np.intp), np.array([written], np.int64), is_awaited=True)

    def _write(self, writes: Sequence[Write]) -> None:
        """In order, until the host is full; what is too short waits until it has grown."""
        streams, memory = self._state.streams, self._state.memory
        page = max(memory.page_tokens, 1)
        rows = np.array([write.row for write in writes], np.intp)
        tokens = np.array([write.tokens for write in writes], np.int64)
        unwritten = (
            streams.column("kv_device_tokens")[rows].astype(np.int64) - streams.column("host_taken_tokens")[rows]
        )
        tokens = np.minimum(tokens, np.maximum(unwritten, 0)) // page * page
        least = max(page, WRITE_GRAIN_TOKENS)
        tokens[tokens < least] = 0
        room = np.maximum(memory.host_free_tokens - (np.cumsum(tokens) - tokens), 0) // page * page
        tokens = np.minimum(tokens, room)
        some = tokens >= least
        if some.any():
            self._copy_to_host(rows[some], tokens[some], is_awaited=False)

    def _copy_to_host(self, rows: NDArray[np.intp], tokens: NDArray[np.int64], *, is_awaited: bool) -> None:
        """One job for all of them, so many tokens more of each."""
        state, total = self._state, int(tokens.sum())
        streams = state.streams
        up_to = streams.column("host_taken_tokens")[rows] + tokens
        streams.column("host_taken_tokens")[rows] = up_to
        streams.column("switch_bytes")[rows] += tokens * self._bytes_per_token
        state.memory.take_host(total)
        copied = [streams.rows[row] for row in rows.tolist()]  # rows move when somebody ends

        def arrived() -> None:
            self._arrived(copied, up_to)

        state.transfers.submit(Direction.D2H, total * self._bytes_per_token, arrived, is_awaited=is_awaited)

    def _arrived(self, copied: Sequence[Stream], up_to: NDArray[np.int64]) -> None:
        streams = self._state.streams
        live = np.array([stream.is_live for stream in copied])
        rows = np.array([stream.row for stream in copied], np.intp)[live]
        on_host = streams.column("kv_host_tokens")
        on_host[rows] = np.maximum(on_host[rows], up_to[live])
        for stream in copied:
            if stream.release_to is not None and stream.is_live:
                self._release_copied(stream)

    def _release_copied(self, stream: Stream) -> None:
        """What was to leave the device leaves it, once all of its copies are there."""
        streams = self._state.streams
        is_there = streams.value(stream, "kv_host_tokens") >= streams.value(stream, "host_taken_tokens")
        if is_there and streams.state(stream) == PREEMPTED and stream.release_to is not None:
            keep, stream.release_to = stream.release_to, None
            self._shrink(stream, keep)

    def _shrink(self, stream: Stream, tokens: int) -> None:
        state = self._state
        held = state.streams.value(stream, "kv_device_tokens")
        if tokens < held:
            state.memory.resize(held, tokens)
            state.streams.column("kv_device_tokens")[stream.row] = tokens
            state.must_decide = True
