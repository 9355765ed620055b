"""Copies: order, contention, time."""

import pytest

from tokenflow.sim.performance import Link
from tokenflow.sim.transfers import Direction, Transfers

D2H, H2D = Direction.D2H, Direction.H2D


class Rig:
    def __init__(self, **link):
        self.done = []
        self.copied = []
        self.transfers = Transfers(
            Link(**{"d2h_bytes_s": 100.0, "h2d_bytes_s": 100.0, "fixed_s": 0.0} | link), self._note
        )

    def _note(self, direction, now_s, byte_count, service_s):
        self.copied.append((direction, round(now_s, 6), byte_count, round(service_s, 6)))

    def submit(self, name, direction, byte_count, *, is_awaited=False):
        return self.transfers.submit(direction, byte_count, lambda: self.done.append(name), is_awaited=is_awaited)


def test_a_queue_is_served_in_order_and_service_time_leaves_the_queue_out():
    rig = Rig(fixed_s=0.1)
    rig.submit("a", D2H, 100)
    rig.submit("b", D2H, 50)
    rig.transfers.advance(1.05)
    assert rig.done == []
    rig.transfers.advance(2.0)
    assert rig.done == ["a", "b"]
    assert rig.copied == [(D2H, 1.1, 100, 1.1), (D2H, 1.7, 50, 0.6)]


def test_h2d_slows_down_only_while_d2h_runs():
    rig = Rig(h2d_contention_ratio=0.5)
    rig.submit("out", D2H, 100)
    rig.submit("in", H2D, 100)
    rig.transfers.advance(1.0)
    assert rig.done == ["out"]
    assert rig.transfers.backlog_bytes(H2D) == pytest.approx(50)
    rig.transfers.advance(1.5)
    assert rig.done == ["out", "in"]


def test_waiting_for_some_copies_gives_the_time_of_the_last_of_them():
    rig = Rig()
    first, _, third = rig.submit("a", H2D, 100), rig.submit("b", D2H, 500), rig.submit("c", H2D, 100)
    assert rig.transfers.run_until_done([first, third]) == pytest.approx(2.0)
    assert rig.transfers.is_busy
    assert rig.transfers.run_dry() == pytest.approx(5.0)
    assert not rig.transfers.is_busy


def test_the_next_awaited_end_is_never_named_too_late():
    rig = Rig(h2d_contention_ratio=0.5)
    rig.submit("a", H2D, 50)
    awaited = rig.submit("b", H2D, 50, is_awaited=True)
    rig.submit("c", D2H, 1000)
    named_s = rig.transfers.next_awaited_s()
    assert named_s <= rig.transfers.run_until_done([awaited])
    assert rig.transfers.next_awaited_s() == float("inf")


def test_a_copy_of_nothing_ends_at_once_in_its_turn():
    rig = Rig()
    rig.submit("a", D2H, 100)
    rig.submit("nothing", D2H, 0)
    rig.transfers.advance(1.0)
    assert rig.done == ["a", "nothing"]


def test_late_in_a_long_run_rounding_does_not_keep_a_copy_for_ever():
    rig = Rig(d2h_bytes_s=5.5e10)
    rig.transfers.advance(123_456.789)
    rig.submit("a", D2H, 1e9 / 3)
    assert rig.transfers.run_dry() == pytest.approx(123_456.789 + 1 / 165, abs=1e-6)
