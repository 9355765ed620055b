"""A stream's row by way of the real sockets, with the scheduler's half on the other side."""

import asyncio
import time

import pytest
from sglang_fakes import FakeGovernor, FakeReq, batch_of, scheduler_with

from tokenflow.sglang.faults import FaultGuard
from tokenflow.sglang.observer import Place, SchedulerObserver
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


@pytest.fixture
async def client(tmp_path):
    made = RowClient(tmp_path)
    yield made
    made.close()


async def asked(observer, client, *rids, other=None):
    """The rows, while the schedulers go on turning."""
    asking = asyncio.gather(*(client.row(rid) for rid in rids))
    deadline_s = time.monotonic() + 10.0
    while not asking.done() and time.monotonic() < deadline_s:
        observer.on_loop()
        if other is not None:
            other.on_loop()
        await asyncio.sleep(0.005)
    return await asking


async def test_a_row_comes_from_the_scheduler(observer, client):
    row, unknown = await asked(observer, client, "tf-a", "tf-nobody")
    assert (row.rid, row.generated_tokens) == ("tf-a", 3)
    assert unknown is None


async def test_the_scheduler_that_has_it_is_found(tmp_path, observer, client):
    req = FakeReq("tf-b")
    scheduler = scheduler_with([], [req])
    other = SchedulerObserver(scheduler, tmp_path, FaultGuard(), FakeGovernor(scheduler), Place(1, 2, 2))
    req.make(5)
    other.on_step(batch_of(req))
    rows = await asked(observer, client, "tf-a", "tf-b", "tf-nobody", other=other)
    assert [None if row is None else (row.rid, row.generated_tokens) for row in rows] == [
        ("tf-a", 3),
        ("tf-b", 5),
        None,
    ]
    other.close()


async def test_without_a_scheduler_nobody_answers(tmp_path):
    with pytest.raises(TimeoutError):
        await RowClient(tmp_path).row("tf-a")


async def test_looking_changes_nothing_and_hurries_no_telemetry(observer, client):
    observer._next_telemetry_s = planned_s = time.monotonic() + 3600.0
    observer._had_work = True
    await asked(observer, client, "tf-a")
    assert observer._next_telemetry_s == planned_s


async def test_a_late_answer_is_nobodys(observer, client, monkeypatch):
    monkeypatch.setattr("tokenflow.sglang.row_client.ANSWER_LIMIT_S", 0.05)
    with pytest.raises(TimeoutError):
        await client.row("tf-nobody")
    monkeypatch.setattr("tokenflow.sglang.row_client.ANSWER_LIMIT_S", 10.0)
    [row] = await asked(observer, client, "tf-a")
    assert row.rid == "tf-a"


async def test_questions_do_not_pile_up(observer, client, monkeypatch):
    monkeypatch.setattr("tokenflow.sglang.row_client.MAX_WAITING_COUNT", 3)
    asking = [asyncio.create_task(client.row(f"tf-{number}")) for number in range(3)]
    await asyncio.sleep(0.02)
    with pytest.raises(TimeoutError):
        await client.row("tf-a")
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


async def test_many_ask_at_once(observer, client):
    rows = await asked(observer, client, *["tf-a", "tf-b"] * 100)
    assert [None if row is None else row.rid for row in rows] == ["tf-a", None] * 100
