"""Draining against an engine that answers in turn: how long it waits, and whom it cuts."""

import asyncio

import pytest

from tokenflow import link
from tokenflow.wire import PluginState
from tokenflowd import draining
from tokenflowd.draining import Drain


class Answering:
    """As much of an engine as a drain needs. `counts`: open streams in each answer, None where there is none."""

    def __init__(self, *counts, has_plugin=True):
        self._counts = list(counts)
        self.has_plugin = has_plugin
        self.frontend_reply = None
        self.death = asyncio.get_running_loop().create_future()
        self.asked = []

    async def ask_frontend(self, command, limit_s):
        self.asked.append(type(command).__name__)
        count = self._counts.pop(0) if len(self._counts) > 1 else self._counts[0]
        if count is None:
            return None
        return link.Reply(plugin_version="1", pid=1, plugin=PluginState.ACTIVE, open_stream_count=count)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(draining, "_TURN_S", 0.01)


async def run(engine, limit_s=20.0):
    told = []
    await Drain(limit_s).run(engine, lambda text, ratio: told.append(text))
    return told


async def test_a_question_without_an_answer_ends_no_stream():
    engine = Answering(2, None, 1, 0)
    told = await run(engine)
    assert engine.asked == ["CloseAdmission"] * 4
    assert "does not answer" in told[1]


async def test_admission_is_closed_by_the_question_that_is_heard():
    engine = Answering(None, None, 0)
    await run(engine)
    assert engine.asked == ["CloseAdmission"] * 3


async def test_without_our_plugin_nobody_is_waited_for():
    engine = Answering(None, has_plugin=False)
    await run(engine)
    assert engine.asked == ["CloseAdmission"]


async def test_what_is_open_at_the_end_is_cut():
    engine = Answering(3)
    told = await run(engine, limit_s=0.05)
    assert engine.asked[-1] == "CutStreams"
    assert told[-1] == "cutting 3 open streams"
