"""What stands in for CUDA in HiCache on a CPU: copies, memory that is not pinned, and a clock."""

import pytest

from tokenflow.sglang.cpu_hicache import HostClockEvent, copy_rows, make_host_clock_event_pair, without_pinning


def test_events_measure_host_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stamps_ns = iter([1_000_000, 3_500_000])
    monkeypatch.setattr("tokenflow.sglang.cpu_hicache.time.perf_counter_ns", lambda: next(stamps_ns))
    start, finish, can_be_timed = make_host_clock_event_pair()
    start.record()
    finish.record(None)
    assert can_be_timed
    assert start.elapsed_time(finish) == 2.5
    assert start.query()


def test_time_of_an_event_that_was_not_recorded() -> None:
    with pytest.raises(ValueError, match="recorded"):
        HostClockEvent().elapsed_time(HostClockEvent())


def test_pinning_is_turned_off() -> None:
    class Pool:
        def __init__(self, size: int, *, pin_memory: bool) -> None:
            self.made = (size, pin_memory)

    Pool.__init__ = without_pinning(Pool.__init__)  # type: ignore[method-assign]
    assert Pool(3, pin_memory=True).made == (3, False)


def test_rows_are_copied_in_every_layer() -> None:
    torch = pytest.importorskip("torch")
    source = [torch.arange(6.0).reshape(6, 1), torch.arange(10.0, 16.0).reshape(6, 1)]
    destination = [torch.zeros(4, 1), torch.zeros(4, 1)]
    copy_rows(source, destination, torch.tensor([5, 2]), torch.tensor([0, 3]), page_size=1)
    assert [layer.flatten().tolist() for layer in destination] == [[5.0, 0.0, 0.0, 2.0], [15.0, 0.0, 0.0, 12.0]]
