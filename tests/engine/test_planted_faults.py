"""Faults planted in every hook of the scheduler's side, on the real engine: no stream is lost, no text changes."""

import asyncio
import os
import signal
import time

import psutil
import pytest
from engine_faults import bad_lines, log_on_failure, strict_checks
from engine_streams import FAST, alone, burst, endpoint, flush_cache, texts_of, wait_until_idle
from probe_control import ProbeControl, assert_nothing_is_held

from tokenflow import link
from tokenflow.loadgen.run import LoadRun
from tokenflow.sglang.faults import MAX_FAULTS

ENGINE = (*FAST, "--max-running-requests", "3", "--max-total-tokens", "320", "--context-length", "320")
PACKAGE = "tokenflow.sglang"
# What our hooks call. Each is met with faults before and after it has done its work; a group at a time, since there
# are many. A fault strikes at every fifth call, the first while the burst begins.
GROUPS: dict[str, tuple[str, ...]] = {
    "looking": (
        *(
            f"observer.SchedulerObserver.{name}"
            for name in ("on_loop", "on_step", "_take_deliveries", "_answer_commands", "_send_telemetry")
        ),
        "snapshot.SnapshotBuilder.reconcile",
        *(f"tracker.RequestTracker.{name}" for name in ("see", "count_step", "end")),
    ),
    "deciding": (
        *(
            f"governor.Governor.{name}"
            for name in ("decide", "note", "note_resumed", "note_released", "on_step", "reconcile", "explain", "_order")
        ),
        *(f"driver.PolicyDriver.{name}" for name in ("decide", "_row")),
        *(f"kv_watch.KvWatch.{name}" for name in ("poll", "pools")),
        *(f"attach.Rank.{name}" for name in ("decide", "note", "is_skewed", "end_turn")),
    ),
    "acting": tuple(
        f"actuator.Actuator.{name}"
        for name in ("carry_out", "drain", "_pause", "_stamp", "_write", "settle", "narrow", "widen", "keeps_kv")
    ),
    "keeping": (
        "kv_tree.KvTree.path",
        *(f"kept_kv.KeptKv.{name}" for name in ("keep", "settle", "let_go", "_lock", "_release", "copies")),
    ),
    "retraction": ("actuator.Actuator.retraction_order",),
}
FAULTS_A_POINT = 2
PLANS = burst(seed=21, count=8, tokens=30)


class Place:
    """An engine with the probe in it, and what its streams say when nothing goes wrong."""

    def __init__(self, rig) -> None:
        self.rig = rig
        self.probe = ProbeControl(rig.folder, rig.environment)
        strict_checks(rig.environment)
        rig.start(*ENGINE)
        self.endpoint = endpoint(rig)  # it asks the daemon for the address, and the daemon is killed later
        self.set_mode("off")
        self.expected = [texts_of(rig, [alone(plan)])[0] for plan in PLANS]
        flush_cache(rig)
        self.set_mode("enforce")

    def set_mode(self, mode: str) -> None:
        answer = self.rig.tfctl("mode", mode)
        assert answer.returncode == 0, answer.stderr

    def stream(self) -> list[str]:
        """What is wrong with the streams of a burst: nothing, if all is well."""
        streams = asyncio.run(LoadRun(self.endpoint, PLANS, keep_text=True).execute()).streams
        wrong = [f"{stream.error}" for stream in streams if stream.error is not None]
        return wrong or [
            f"stream {number} has another text"
            for number, (stream, text) in enumerate(zip(streams, self.expected, strict=True))
            if stream.text != text
        ]

    def case(self, name: str, **orders: object) -> tuple[list[str], dict[str, int]]:
        """Runs a burst under these orders. (what went wrong, how often each fault struck)"""
        flush_cache(self.rig)  # the streams are the same each time: else their KV would be there already
        self.probe.order(forget_faults="faults" in orders, **orders)
        wrong = [f"{name}: {text}" for text in self.stream()]
        time.sleep(0.15)  # the probe answers ten times a second
        struck = self.probe.answer()["hits"]
        print(f"{name}: {struck or ''} {wrong or 'as ever'}", flush=True)
        return wrong, struck

    def assert_clean(self) -> None:
        self.probe.order()
        wait_until_idle(self.rig)
        assert_nothing_is_held(self.probe.report())


def faults(points: tuple[str, ...], kind: str, count: int = FAULTS_A_POINT) -> dict[str, object]:
    return {f"{PACKAGE}.{point}": {"kind": kind, "left": count, "every": 5, "delay_s": 0.1} for point in points}


def other_lines(rig) -> list[str]:
    """Lines that tell of a fault which was not planted."""
    return [line for line in bad_lines(rig) if "tokenflow: fault in" not in line and "Traceback" not in line]


@pytest.mark.timeout(1200)
def test_no_fault_of_ours_costs_a_stream(own_engine):
    place = Place(own_engine)
    wrong: list[str] = []
    unmet: list[str] = []
    with log_on_failure(own_engine):
        for name, points in GROUPS.items():
            orders = {"retract_every": 9} if name == "retraction" else {}
            for kind in ("before", "after"):
                found, struck = place.case(f"{kind} {name}", faults=faults(points, kind), **orders)
                wrong += found
                unmet += [f"{kind} {point}" for point in points if not struck.get(f"{PACKAGE}.{point}")]
        every_point = tuple(point for points in GROUPS.values() for point in points)
        wrong += place.case("delays", faults=faults(every_point, "delay"))[0]
        assert wrong == []
        assert unmet == [], "these faults were planted and never met"
        place.assert_clean()
        assert own_engine.status()["quality"]["preemption_total"] > 0
        assert other_lines(own_engine) == []

        place.probe.order(faults=faults(GROUPS["looking"], "before", 10**6))
        assert place.stream() == []
        status = own_engine.status()
        assert status["engine"]["plugin"] == "disabled"
        assert status["policy"]["fault_count"] >= MAX_FAULTS
        place.probe.order()
        assert place.stream() == [], "streams after the plugin has turned itself off"
        assert_nothing_is_held(place.probe.report())
    own_engine.stop()
    own_engine.assert_nothing_left()


@pytest.mark.timeout(600)
def test_no_fault_around_the_engine_costs_a_stream_either(own_engine):
    place = Place(own_engine)
    with log_on_failure(own_engine):
        wrong = place.case("host pool full", host_tokens_to_take=10**9)[0]
        assert place.probe.answer()["host_tokens_taken"] > 0
        wrong += place.case("host pool free again", host_tokens_to_take=0)[0]
        wrong += late_copies_for_aborted_requests(place)
        wrong += place.case("late copies", late_acks_s=0.3)[0]

        daemon = psutil.Process(own_engine.status()["daemon"]["pid"])
        daemon.send_signal(signal.SIGSTOP)  # a subscriber that takes nothing
        try:
            wrong += [f"daemon stopped: {text}" for text in place.stream()]
        finally:
            daemon.send_signal(signal.SIGCONT)
        assert wrong == []
        place.assert_clean()
        assert own_engine.status()["policy"]["fault_count"] == 0

        for path in link_sockets(own_engine):
            path.unlink()
        assert place.stream() == [], "streams after the link's sockets were removed"
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.wait(10.0)
        assert place.stream() == [], "streams after the daemon was killed"
        assert_nothing_is_held(place.probe.report())
    stopped = own_engine.tfctl("stop")
    assert stopped.returncode == 0, stopped.stderr
    own_engine.assert_nothing_left()


def late_copies_for_aborted_requests(place: Place) -> list[str]:
    """Requests end while their KV is on its way, in both directions. The others are unharmed."""
    states = {"offloading": 2, "loading": 2}
    place.probe.order(late_acks_s=0.3, aborts=states, retract_every=15)
    streams = []
    deadline_s = time.monotonic() + 90.0
    while place.probe.answer()["aborted"] != states and time.monotonic() < deadline_s:
        flush_cache(place.rig)
        streams += asyncio.run(LoadRun(place.endpoint, PLANS, keep_text=True).execute()).streams
        print("late copies for aborted requests:", place.probe.answer()["aborted"], flush=True)
    answer = place.probe.answer()
    assert answer["aborted"] == states
    expected = place.expected * (len(streams) // len(PLANS))
    wrong = [
        f"late copies: {stream.error or 'another text'}"
        for stream, text in zip(streams, expected, strict=True)
        if stream.rid not in answer["aborted_rids"] and (stream.error is not None or stream.text != text)
    ]
    lost = [stream for stream in streams if stream.rid in answer["aborted_rids"] and not stream.error]
    return wrong + [f"{stream.rid} was aborted and does not say so" for stream in lost]


def link_sockets(rig):
    names = (link.TELEMETRY_SOCKET, link.SCHEDULER_SOCKET, link.FRONTEND_SOCKET, link.DELIVERY_SOCKET)
    return [path for path in rig.sockets() if path.name in names]
