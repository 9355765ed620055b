"""The scheduler's half over real ZeroMQ sockets, with a scheduler of a few attributes."""

import time
from pathlib import Path

import msgspec
import pytest
import zmq
from sglang_fakes import FakeGovernor, FakeReq, batch_of, scheduler_with

from tokenflow import link
from tokenflow.events import EventKind
from tokenflow.policy.states import Mode
from tokenflow.sglang.actuator import Actuator
from tokenflow.sglang.attach import Rank
from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.observer import SchedulerObserver
from tokenflow.sglang.rank_exchange import RankExchange
from tokenflow.sglang.scheduler_hooks import SchedulerHooks
from tokenflow.sglang.settings import PluginSettings
from tokenflow.wire import PluginState

WAIT_MS = 5000


class Bench:
    """An observer, and the daemon's and the HTTP process's ends of its sockets."""

    def __init__(self, folder: Path) -> None:
        self.req = FakeReq("tf-a")
        self.guard = FaultGuard()
        self.scheduler = scheduler_with([], [self.req])
        self.governor = FakeGovernor(self.scheduler)
        self.observer = SchedulerObserver(self.scheduler, folder, self.guard, self.governor)
        self.context = zmq.Context()
        self.telemetry = self.connected(zmq.SUB, folder / link.TELEMETRY_SOCKET)
        self.telemetry.setsockopt(zmq.SUBSCRIBE, b"")
        self.commands = self.connected(zmq.DEALER, folder / link.SCHEDULER_SOCKET)
        self.deliveries = self.connected(zmq.PUSH, folder / link.DELIVERY_SOCKET)

    def connected(self, kind, path):
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"ipc://{path}")
        return socket

    def turn_until(self, socket):
        deadline_s = time.monotonic() + WAIT_MS / 1000
        while time.monotonic() < deadline_s:
            self.observer.on_loop()
            if socket.poll(10):
                return socket.recv()
        raise AssertionError("nothing came")

    def command(self, message):
        self.commands.send(link.encode(message))
        return link.decode_reply(self.turn_until(self.commands))

    def next_telemetry(self):
        return link.decode_telemetry(self.turn_until(self.telemetry))


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.context.destroy()
    for socket in (made.observer._telemetry, made.observer._commands, made.observer._deliveries):
        socket.close()


def test_telemetry_carries_rows_and_counts(bench):
    bench.req.make(3)
    bench.observer.on_step(batch_of(bench.req))
    message = bench.next_telemetry()
    assert message.step_count == 1
    assert message.has_work
    assert message.plugin is PluginState.ACTIVE
    assert [(stream.rid, stream.buffer.generated_tokens) for stream in message.streams] == [("tf-a", 3)]


def test_deliveries_reach_the_buffer(bench):
    bench.req.make(3)
    bench.observer.on_step(batch_of(bench.req))
    bench.deliveries.send(link.encode(link.DeliveryBatch([link.Delivery("tf-a", 2, time.monotonic())])))
    deadline_s = time.monotonic() + 5
    while time.monotonic() < deadline_s:
        if bench.next_telemetry().streams[0].buffer.delivered_tokens == 2:
            return
    raise AssertionError("the delivery never arrived")


def test_mode_is_set_and_read_back_and_enforce_is_refused_where_an_option_blocks_it(bench):
    bench.governor.blockers = ["--tp-size 2"]
    assert bench.command(link.SetMode(mode=Mode.OFF)).mode is Mode.OFF
    reply = bench.command(link.SetMode(mode=Mode.OBSERVE))
    assert (reply.mode, reply.revision) == (Mode.OBSERVE, 2)
    refused = bench.command(link.SetMode(mode=Mode.ENFORCE))
    assert refused.error_code == "unsupported"
    assert refused.mode is Mode.OBSERVE
    assert "--tp-size 2" in refused.error_message
    bench.governor.blockers = []
    assert bench.command(link.SetMode(mode=Mode.ENFORCE)).mode is Mode.ENFORCE


def test_a_command_that_comes_too_late_is_not_carried_out(bench):
    late = bench.command(link.SetMode(mode=Mode.OFF, deadline_s=time.monotonic() - 1.0))
    assert (late.error_code, late.mode) == ("timeout", Mode.OBSERVE)
    assert bench.command(link.SetMode(mode=Mode.OFF, deadline_s=time.monotonic() + 60.0)).mode is Mode.OFF


def test_what_is_not_a_command_is_answered_and_counted(bench):
    bench.commands.send(b"\xc1 rubbish")
    assert link.decode_reply(bench.turn_until(bench.commands)).error_code == "bad_command"
    assert bench.guard.fault_count == 1
    assert bench.command(link.Ping()).error_code is None


def test_a_command_of_a_newer_daemon_is_refused_and_is_no_fault(bench):
    bench.commands.send(msgspec.msgpack.encode({"type": "of_the_future", "n": 1}))
    reply = link.decode_reply(bench.turn_until(bench.commands))
    assert (reply.error_code, reply.error_hint) == ("unsupported", "at a quiet time: tfctl restart --drain 60")
    assert bench.guard.fault_count == 0


def test_telemetry_tells_how_full_the_pools_are(bench):
    assert bench.next_telemetry().kv_pools == link.KvPools(1000, 900, 0, 2000, 1990, 0)


def test_work_that_arrives_is_told_at_once(bench):
    idle = scheduler_with()
    bench.observer._scheduler = idle
    while bench.next_telemetry().has_work:
        pass
    bench.observer._next_telemetry_s = time.monotonic() + 3600
    idle.waiting_queue.append(FakeReq("tf-new"))
    idle.is_fully_idle = lambda: False
    assert bench.next_telemetry().has_work


def test_after_too_many_faults_it_says_so_instead_of_falling_silent(bench, tmp_path):
    hooks = SchedulerHooks(tmp_path, PluginSettings())
    hooks._rank, hooks.guard = (
        Rank(bench.scheduler, Actuator(bench.scheduler), RankExchange(0, 1), bench.observer),
        bench.guard,
    )
    while not bench.guard.is_tripped:
        bench.guard.record("planted", RuntimeError())
    bench.observer.on_loop = lambda: hooks.before_next_batch(bench.scheduler)
    while (message := bench.next_telemetry()).plugin is not PluginState.DISABLED:
        pass
    assert message.streams == []


def test_switched_off_it_tells_no_streams(bench):
    bench.command(link.SetMode(mode=Mode.OFF))
    while (message := bench.next_telemetry()).mode is not Mode.OFF:
        pass
    assert message.streams == []
    assert message.capacity.running_count == 0


def test_events_ride_on_telemetry_once_and_never_too_many(bench):
    bench.next_telemetry()  # the subscriber is known
    for number in range(link.MAX_EVENTS + 3):
        bench.governor.events.note(EventKind.HELD, f"tf-{number}")
    heard = []
    while len(heard) < link.MAX_EVENTS + 3:
        events = bench.next_telemetry().events
        assert len(events) <= link.MAX_EVENTS
        heard += events
    assert [event.sequence for event in heard] == list(range(1, link.MAX_EVENTS + 4))


def test_tunables_are_read_back_and_refusals_name_the_next_step(bench):
    tuned = bench.command(link.Tune(changes={"quantum_s": 2}))
    assert (tuned.error_code, tuned.tunables["quantum_s"], tuned.revision) == (None, 2.0, 1)
    assert bench.command(link.Ping()).tunables == tuned.tunables
    refused = bench.command(link.PauseRequest(rid="tf-a"))
    assert (refused.error_code, refused.error_hint) == ("unsupported", "tfctl mode enforce")


def test_faults_and_the_end_are_told_as_events(bench, tmp_path):
    hooks = SchedulerHooks(tmp_path, PluginSettings())
    rank = Rank(bench.scheduler, Actuator(bench.scheduler), RankExchange(0, 1), bench.observer)
    hooks._rank, hooks.guard = rank, bench.guard
    bench.next_telemetry()  # the subscriber is known
    bench.guard.record("planted", RuntimeError("oh"))
    heard = []
    while not heard:
        heard += bench.next_telemetry().events
    assert [(event.kind, event.reason) for event in heard] == [(EventKind.FAULT, "planted: RuntimeError: oh")]
    while not bench.guard.is_tripped:
        bench.guard.record("planted", RuntimeError("oh"))
    bench.observer.on_loop = lambda: hooks.before_next_batch(bench.scheduler)
    while EventKind.DISABLED not in [event.kind for event in heard]:
        message = bench.next_telemetry()
        heard += message.events
    assert message.plugin_detail == "planted: RuntimeError: oh"
    refused = bench.command(link.Tune(changes={"quantum_s": 2}))
    assert (refused.error_code, refused.error_hint) == ("unsupported", "tfctl restart")


def test_while_an_operator_holds_everybody_there_is_no_work(bench):
    bench.governor.only_held_wait = True
    while bench.next_telemetry().has_work:
        pass
