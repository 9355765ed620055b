"""Aborts for clients that have gone: by exact id, once where it works, again where it did not."""

import asyncio
from types import SimpleNamespace

import pytest

from tokenflow.sglang.aborts import Aborter
from tokenflow.sglang.faults import FaultGuard


class Manager:
    """SGLang's tokenizer manager, as far as aborts go: each is sent once, until the mark on the state is taken off."""

    def __init__(self, *rids: str, deaf_count: int = 0) -> None:
        self.rid_to_state = {rid: SimpleNamespace(finished=False, abort_sent=False) for rid in rids}
        self.sent: list[str] = []
        self._deaf_count = deaf_count

    def abort_request(self, rid: str) -> None:
        if self.rid_to_state[rid].abort_sent:
            return
        self.rid_to_state[rid].abort_sent = True
        self.sent.append(rid)
        if len(self.sent) > self._deaf_count:
            self.rid_to_state[rid].finished = True
            del self.rid_to_state[rid]


@pytest.fixture
def guard():
    return FaultGuard()


async def test_it_is_sent_at_once_and_once(guard):
    manager = Manager("a1", "b1")
    Aborter(guard, (0.01, 0.01)).abort(manager, ["a1"])
    assert manager.sent == ["a1"]
    await asyncio.sleep(0.05)
    assert manager.sent == ["a1"]
    assert set(manager.rid_to_state) == {"b1"}


async def test_what_was_not_heard_is_sent_again(guard):
    manager = Manager("a1", deaf_count=2)
    Aborter(guard, (0.01, 0.01, 0.01)).abort(manager, ["a1"])
    for _ in range(200):
        if not manager.rid_to_state:
            break
        await asyncio.sleep(0.01)
    assert manager.sent == ["a1"] * 3


async def test_it_gives_up_in_the_end(guard):
    manager = Manager("a1", deaf_count=99)
    Aborter(guard, (0.01, 0.01)).abort(manager, ["a1"])
    await asyncio.sleep(0.2)
    assert manager.sent == ["a1"] * 3
    assert guard.fault_count == 0


async def test_a_request_that_begins_like_anothers_is_left_to_sglang(guard):
    manager = Manager("a1", "a12")
    Aborter(guard).abort(manager, ["a1"])
    assert manager.sent == []


async def test_what_has_ended_or_was_never_there_is_passed_over(guard):
    manager = Manager("a1")
    manager.rid_to_state["a1"].finished = True
    Aborter(guard).abort(manager, ["a1", "nobody", ""])
    assert manager.sent == []


async def test_a_fault_stays_ours(guard):
    Aborter(guard).abort(SimpleNamespace(), ["a1"])
    assert guard.fault_count == 1
