"""A stream's row by way of the real sockets, with the scheduler's half on the other side."""

import asyncio
import time

import pytest
import zmq
from sglang_fakes import FakeGovernor, FakeReq, batch_of, scheduler_with

from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.observer import SchedulerObserver
from tokenflow.sglang.row_client import RowClient


@pytest.fixture
def observer(tmp_path):
    req = FakeReq("tf-a")
    scheduler = scheduler_with([], [req])
    made = SchedulerObserver(scheduler, tmp_path, FaultGuard(), FakeGovernor(scheduler))
    req.make(3)
    made.on_step(batch_of(req))
    yield made
    made.close()


async def asked(observer, client, *rids):
    """The rows, while the scheduler goes on turning."""
    asking = asyncio.gather(*(client.row(rid) for rid in rids))
    deadline_s = time.monotonic() + 10.0
    while not asking.done() and time.monotonic() < deadline_s:
        observer.on_loop()
        await asyncio.sleep(0.005)
    return await asking


async def test_a_row_comes_from_the_scheduler(observer, tmp_path):
    row, unknown = await asked(observer, RowClient(tmp_path), "tf-a", "tf-nobody")
    assert (row.rid, row.generated_tokens) == ("tf-a", 3)
    assert unknown is None


async def test_looking_changes_nothing_and_hurries_no_telemetry(observer, tmp_path):
    observer._next_telemetry_s = planned_s = time.monotonic() + 3600.0
    observer._had_work = True
    await asked(observer, RowClient(tmp_path), "tf-a")
    assert observer._next_telemetry_s == planned_s


async def test_a_scheduler_that_is_busy_is_said_so_and_its_late_answer_is_nobodys(observer, tmp_path, monkeypatch):
    monkeypatch.setattr("tokenflow.sglang.row_client.ANSWER_LIMIT_S", 0.05)
    client = RowClient(tmp_path)
    with pytest.raises(TimeoutError):
        await client.row("tf-nobody")
    monkeypatch.setattr("tokenflow.sglang.row_client.ANSWER_LIMIT_S", 10.0)
    [row] = await asked(observer, client, "tf-a")
    assert row.rid == "tf-a"
    assert not client._socket.closed
    assert client._socket.getsockopt(zmq.LINGER) == 0
