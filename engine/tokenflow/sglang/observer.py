"""The scheduler's half of the plugin: feeds the tracker, sends telemetry, takes commands and deliveries.

All of it runs on the scheduler's own thread, between its steps, and every entry point is guarded: see `faults`.
"""

import os
import time
from pathlib import Path
from typing import Any

import zmq

from tokenflow import link
from tokenflow.policy.states import Mode
from tokenflow.sglang import compat
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.governor import Governor
from tokenflow.sglang.settings import PluginSettings
from tokenflow.version import __version__
from tokenflow.wire import Capacity, PluginState

TELEMETRY_INTERVAL_S = 0.1
DISABLED_INTERVAL_S = 1.0
POLL_INTERVAL_S = 0.005
MAX_MESSAGES_PER_POLL = 256


class SchedulerObserver:
    """Attached to the one scheduler of rank 0."""

    def __init__(
        self, scheduler: Any, folder: Path, settings: PluginSettings, guard: FaultGuard, governor: Governor
    ) -> None:
        self._scheduler = scheduler
        self._guard = guard
        self._settings = settings
        self.revision = 0
        self.governor = governor
        self.tracker = governor.tracker
        self._builder = governor.builder
        self._engine_version = compat.engine_version() or "unknown"
        self.spent_s = 0.0  # in our own hooks, so that the plugin's cost is a measured number; added up by the hooks
        self._step_count = 0
        self._last_step_s: float | None = None
        self._sequence = 0
        self._had_work = False
        self._next_poll_s = 0.0
        self._next_telemetry_s = 0.0
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._telemetry = _bound(context, zmq.PUB, folder / link.TELEMETRY_SOCKET)
        self._commands = _bound(context, zmq.ROUTER, folder / link.SCHEDULER_SOCKET)
        self._deliveries = _bound(context, zmq.PULL, folder / link.DELIVERY_SOCKET)
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
        if now_s >= self._next_telemetry_s or (self._scheduler.waiting_queue and not self._had_work):
            self._next_telemetry_s = now_s + TELEMETRY_INTERVAL_S
            self._send_telemetry(now_s)

    def on_loop_disabled(self) -> None:
        """After too many faults: once a second the daemon is told that the plugin has turned itself off."""
        now_s = time.monotonic()
        if now_s < self._next_telemetry_s:
            return
        self._next_telemetry_s = now_s + DISABLED_INTERVAL_S
        self._answer_commands()
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
            for delivery in link.decode_deliveries(body).deliveries:
                self.tracker.take_delivery(delivery)

    def _answer_commands(self) -> None:
        while True:
            try:
                *envelope, body = self._commands.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                reply = self._carry_out(link.decode_command(body))
            except Exception as error:  # noqa: BLE001 - the sender learns of it; the loop goes on
                self._guard.record("scheduler command", error)
                reply = self._reply()
                reply.error_code, reply.error_message = "bad_command", str(error)
            self._commands.send_multipart([*envelope, link.encode(reply)], zmq.NOBLOCK)
            self._next_telemetry_s = 0.0

    def _carry_out(self, command: link.Command) -> link.Reply:
        match command:
            case link.SetMode(deadline_s=float(deadline_s)) if time.monotonic() > deadline_s:
                reply = self._reply()
                reply.error_code, reply.error_message = "timeout", "the command came too late and was not carried out"
                return reply
            case link.SetMode(mode=Mode.ENFORCE) if self.governor.blockers:
                reply = self._reply()
                reply.error_code = "unsupported"
                reply.error_message = f"decisions cannot be carried out with {', '.join(self.governor.blockers)}"
                return reply
            case link.SetMode(mode=mode):
                if mode is not self.mode:
                    self.governor.set_mode(mode)
                    self.revision += 1
            case link.Ping():
                pass
            case _:
                reply = self._reply()
                reply.error_code, reply.error_message = "unsupported", "not a command for the scheduler"
                return reply
        return self._reply()

    def _reply(self) -> link.Reply:
        return link.Reply(
            plugin_version=__version__,
            pid=os.getpid(),
            plugin=self._plugin_state(),
            plugin_detail=self._guard.last_fault,
            engine_version=self._engine_version,
            mode=self.mode,
            revision=self.revision,
        )

    def _plugin_state(self) -> PluginState:
        return PluginState.DISABLED if self._guard.is_tripped else PluginState.ACTIVE

    def _send_telemetry(self, now_s: float) -> None:
        scheduler = self._scheduler
        self._had_work = not scheduler.is_fully_idle()
        capacity, streams = Capacity(), []
        if self.mode is not Mode.OFF:
            capacity = self._builder.reconcile(scheduler, now_s)
            self.governor.explain(now_s)
            capacity.capacity_tok_s = self.governor.driver.capacity_tok_s
            if capacity.capacity_tok_s:
                capacity.headroom_ratio = 1.0 - capacity.demand_tok_s / capacity.capacity_tok_s
            streams = self._builder.streams(now_s)
        self._telemetry.send(link.encode(self._message(now_s, capacity, streams)), zmq.NOBLOCK)

    def _message(self, now_s: float, capacity: Capacity, streams: list[link.StreamState]) -> link.Telemetry:
        self._sequence += 1
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
            variant=self._settings.variant,
            overload=self.governor.driver.is_overloaded,
            revision=self.revision,
            fault_count=self._guard.fault_count,
            plugin_spent_s=self.spent_s,
            plugin=self._plugin_state(),
            blocked_by=self.governor.blockers,
            capacity=capacity,
            transfers=self.governor.driver.kv.transfers(),
            latency=self.governor.driver.latency(),
            quality=self._builder.quality(now_s),
            streams=streams,
        )


def _bound(context: "zmq.Context[Any]", kind: int, path: Path) -> Any:
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(f"ipc://{path}")
    return socket
