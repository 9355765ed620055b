import logging

from tokenflow.sglang.faults import FaultGuard


def test_a_fault_is_swallowed_counted_and_logged_once_per_kind(caplog):
    guard = FaultGuard(max_faults=10)

    def broken(value):
        raise ValueError(value)

    guarded = guard.wrap(broken)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            guarded("same")
    assert guard.fault_count == 3
    assert guard.last_fault is not None
    assert "ValueError: same" in guard.last_fault
    assert len(caplog.records) == 1


def test_after_too_many_faults_nothing_is_called_any_more():
    guard, calls = FaultGuard(max_faults=2), []

    def broken():
        calls.append(1)
        raise RuntimeError

    guarded = guard.wrap(broken)
    for _ in range(5):
        guarded()
    assert guard.is_tripped
    assert len(calls) == 2


def test_a_working_function_is_left_alone():
    guard, calls = FaultGuard(), []
    guard.wrap(calls.append)("x")
    assert calls == ["x"]
    assert guard.fault_count == 0
