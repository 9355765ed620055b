"""The scheduler's half of the plugin: feeds the tracker, sends telemetry, takes commands and deliveries.

All of it runs on the scheduler's own thread, between its steps, and every entry point is guarded: see `faults`.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import zmq

from tokenflow import link
from tokenflow.events import EventKind
from tokenflow.policy.states import Mode
from tokenflow.sglang import compat
from tokenflow.sglang.controls import CommandRefusedError, Controls, carry_out
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.governor import Governor
from tokenflow.version import __version__
from tokenflow.wire import Capacity, PluginState

TELEMETRY_INTERVAL_S = 0.1
DISABLED_INTERVAL_S = 1.0
SAMPLE_INTERVAL_S = 1.0  # of runways, and of what counters are behind by
POLL_INTERVAL_S = 0.005
MAX_MESSAGES_PER_POLL = 256
MAX_COMMANDS_PER_POLL = 32  # clients may ask for their rows as often as they like


@dataclass(frozen=True, slots=True)
class Place:
    """Which of the engine's schedulers this is, and how many of them have a link."""

    index: int = 0
    count: int = 1
    watched_count: int = 1


ALONE = Place()


class SchedulerObserver:
    """Attached to the one scheduler of rank 0; with data parallelism to that of each replica."""

    def __init__(
        self, scheduler: Any, folder: Path, guard: FaultGuard, governor: Governor, place: Place = ALONE
    ) -> None:
        self._scheduler = scheduler
        self._place = place
        self._guard = guard
        self.governor = governor
        self._controls = Controls(governor, governor.events)
        self._told_fault_count = 0
        self.tracker = governor.tracker
        self._builder = governor.builder
        self._engine_version = compat.engine_version() or "unknown"
        self.spent_s = 0.0  # in our own hooks, so that the plugin's cost is a measured number; added up by the hooks
        self._step_count = 0
        self._last_step_s: float | None = None
        self._sequence = 0
        self._is_disabled_told = False
        self._had_work = False
        self._next_poll_s = 0.0
        self._next_telemetry_s = 0.0
        self._next_sample_s = 0.0
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        telemetry, commands, deliveries = (
            folder / link.own_socket(name, place.index)
            for name in (link.TELEMETRY_SOCKET, link.SCHEDULER_SOCKET, link.DELIVERY_SOCKET)
        )
        self._telemetry = _bound(context, zmq.PUB, telemetry, link.TELEMETRY_QUEUE_COUNT)
        self._commands = _bound(context, zmq.ROUTER, commands)
        self._deliveries = _bound(context, zmq.PULL, deliveries)
        if scheduler.idle_sleeper is not None:
            # With --sleep-on-idle the loop sleeps up to a second; a command or a delivery wakes it.
            for socket in (self._commands, self._deliveries):
                scheduler.idle_sleeper.poller.register(socket, zmq.POLLIN)

    @property
    def mode(self) -> Mode:
        return self.governor.mode

    def on_step(self, batch: Any) -> None:
        """A batch's result has been processed."""
        now_s = time.monotonic()
        self._step_count += 1
        self._last_step_s = now_s
        if self.mode is not Mode.OFF:
            self.tracker.count_step(batch.reqs, now_s)
            self.governor.on_step(batch, now_s)

    def on_loop(self) -> None:
        """Once per turn of the scheduler's loop, before it chooses the next batch."""
        now_s = time.monotonic()
        if now_s >= self._next_poll_s:
            self._next_poll_s = now_s + POLL_INTERVAL_S
            self._take_deliveries()
            self._answer_commands()
        # Work that has just arrived is told at once: the step that it starts may take long, and says nothing meanwhile.
        if now_s >= self._next_telemetry_s or (not self._had_work and self._has_new_work()):
            self._next_telemetry_s = now_s + TELEMETRY_INTERVAL_S
            self._send_telemetry(now_s)

    def _has_new_work(self) -> bool:
        return bool(self._scheduler.waiting_queue) and not self.governor.only_held_wait

    def on_loop_disabled(self) -> None:
        """After too many faults: once a second the daemon is told that the plugin has turned itself off."""
        now_s = time.monotonic()
        if now_s < self._next_telemetry_s:
            return
        self._next_telemetry_s = now_s + DISABLED_INTERVAL_S
        self._answer_commands()
        if not self._is_disabled_told:
            self._is_disabled_told = True
            self._note_faults()
            terms = {"fault_count": self._guard.fault_count}
            self.governor.events.note(EventKind.DISABLED, reason=self._guard.last_fault, terms=terms)
        self._telemetry.send(link.encode(self._message(now_s, Capacity(), [])), zmq.NOBLOCK)

    def close(self) -> None:
        """Gives the link's sockets up again."""
        for socket in (self._telemetry, self._commands, self._deliveries):
            socket.close()

    def _take_deliveries(self) -> None:
        for _ in range(MAX_MESSAGES_PER_POLL):
            try:
                body = self._deliveries.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            batch = link.decode_deliveries(body)
            for delivery in batch.deliveries:
                self.tracker.take_delivery(delivery)
            for ack in batch.acks:
                self.tracker.take_ack(ack)

    def _answer_commands(self) -> None:
        for _ in range(MAX_COMMANDS_PER_POLL):
            try:
                *envelope, body = self._commands.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            command: link.Command | None = None
            try:
                command = link.decode_command(body)
                reply = self._answer(command)
            except msgspec.ValidationError as error:  # of a newer daemon: no fault of ours
                reply = self._reply()
                reply.error_code, reply.error_message = "unsupported", f"this plugin does not know that: {error}"
                reply.error_hint = "at a quiet time: tfctl restart --drain 60"
            except Exception as error:  # noqa: BLE001 - the sender learns of it; the loop goes on
                self._guard.record("scheduler command", error, getattr(command, "rid", None))
                reply = self._reply()
                reply.error_code, reply.error_message = "bad_command", str(error)
            self._commands.send_multipart([*envelope, link.encode(reply)], zmq.NOBLOCK)
            if not isinstance(command, link.ShowStream):  # which changes nothing, and clients may ask it often
                self._next_telemetry_s = 0.0

    def _answer(self, command: link.Command) -> link.Reply:
        try:
            if self._guard.is_tripped and not isinstance(command, link.Ping):
                raise CommandRefusedError("unsupported", "the plugin has turned itself off", "tfctl restart")
            added = carry_out(self._controls, command)
        except CommandRefusedError as error:
            reply = self._reply()
            reply.error_code, reply.error_message = error.code, error.message
            reply.error_hint, reply.error_field = error.hint, error.field
            return reply
        return msgspec.structs.replace(self._reply(), **added)

    def _reply(self) -> link.Reply:
        return link.Reply(
            plugin_version=__version__,
            pid=os.getpid(),
            plugin=self._plugin_state(),
            plugin_detail=self._guard.last_fault,
            engine_version=self._engine_version,
            mode=self.mode,
            revision=self.governor.revision,
        )

    def _plugin_state(self) -> PluginState:
        return PluginState.DISABLED if self._guard.is_tripped else PluginState.ACTIVE

    def _send_telemetry(self, now_s: float) -> None:
        scheduler = self._scheduler
        self._note_faults()
        self._had_work = not (scheduler.is_fully_idle() or self.governor.only_held_wait)
        capacity, streams = Capacity(), []
        if self.mode is not Mode.OFF:
            capacity = self.governor.reconcile(now_s)
            self.governor.explain(now_s)
            capacity.capacity_tok_s = self.governor.driver.capacity_tok_s
            if capacity.capacity_tok_s:
                capacity.headroom_ratio = 1.0 - capacity.demand_tok_s / capacity.capacity_tok_s
            if now_s >= self._next_sample_s:
                self._next_sample_s = now_s + SAMPLE_INTERVAL_S
                self.tracker.sample(now_s)
            streams = self._builder.streams(now_s)
        self._telemetry.send(link.encode(self._message(now_s, capacity, streams)), zmq.NOBLOCK)

    def _message(self, now_s: float, capacity: Capacity, streams: list[link.StreamState]) -> link.Telemetry:
        self._sequence += 1
        self.tracker.counters.plugin_spent_s = self.spent_s
        return link.Telemetry(
            plugin_version=__version__,
            engine_version=self._engine_version,
            pid=os.getpid(),
            sequence=self._sequence,
            sent_s=now_s,
            step_count=self._step_count,
            last_step_s=self._last_step_s,
            has_work=self._had_work,
            mode=self.mode,
            variant=self.governor.tunables.variant,
            overload=self.governor.driver.is_overloaded,
            revision=self.governor.revision,
            fault_count=self._guard.fault_count,
            plugin_spent_s=self.spent_s,
            plugin=self._plugin_state(),
            plugin_detail=self._guard.last_fault,
            blocked_by=self.governor.blockers,
            capacity=capacity,
            transfers=self.governor.driver.kv.transfers(),
            latency=self._builder.add_delivery(self.governor.driver.latency()),
            quality=self._builder.quality(now_s),
            streams=streams,
            disconnect_counts=self.tracker.totals.disconnect_counts,
            counters=self.tracker.counters,
            events=self.governor.events.take(link.MAX_EVENTS),
            kv_pools=link.KvPools(*self.governor.driver.kv.pools()),
            scheduler_count=self._place.count,
            watched_count=self._place.watched_count,
            scheduler_index=self._place.index,
        )

    def _note_faults(self) -> None:
        """A fault is told once telemetry is due: what failed may fail again at every step."""
        if self._guard.fault_count != self._told_fault_count:
            self._told_fault_count = self._guard.fault_count
            terms = {"fault_count": self._guard.fault_count}
            self.governor.events.note(EventKind.FAULT, reason=self._guard.last_fault, terms=terms)


def _bound(context: "zmq.Context[Any]", kind: int, path: Path, queue_count: int | None = None) -> Any:
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    if queue_count is not None:
        socket.setsockopt(zmq.SNDHWM, queue_count)
    socket.bind(f"ipc://{path}")
    return socket
