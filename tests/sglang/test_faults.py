import logging

from tokenflow.sglang.faults import FaultGuard


def test_a_fault_is_counted_and_logged_once_per_place_and_kind(caplog):
    guard = FaultGuard(max_faults=10)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            guard.record("on_step", ValueError("same"))
        guard.record("on_loop", ValueError("elsewhere"))
    assert guard.fault_count == 4
    assert guard.last_fault == "on_loop: ValueError: elsewhere"
    assert len(caplog.records) == 2


def test_after_too_many_it_trips_and_says_so(caplog):
    guard = FaultGuard(max_faults=2)
    guard.record("on_step", RuntimeError())
    assert not guard.is_tripped
    with caplog.at_level(logging.ERROR):
        guard.record("on_step", RuntimeError())
    assert guard.is_tripped
    assert "turns itself off" in caplog.text


def test_a_fault_about_a_request_names_it(caplog):
    with caplog.at_level(logging.ERROR):
        FaultGuard().record("abort", ValueError("planted"), "rid-1")
    assert "fault in abort (rid rid-1)" in caplog.text
