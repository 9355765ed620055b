"""Penalties over pauses on the real engine: what a stream has said before the pause is not said again after it."""

import asyncio

import pytest
from engine_streams import FAST, alone, burst, flush_cache, wait_until_idle

from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.run import LoadRun

# Without overlap every step knows the token before it, so that a text depends on nothing but the stream itself.
SHORT_OF_KV = (*FAST, "--max-running-requests", "12", "--max-total-tokens", "700", "--context-length", "700")
NO_OVERLAP = (*SHORT_OF_KV, "--disable-overlap-schedule")


def texts_of(rig, plans, penalty) -> list[str]:
    endpoint = Endpoint(url=rig.url, model=rig.model, extra_body={"ignore_eos": True, **penalty})
    result = asyncio.run(LoadRun(endpoint, plans, keep_text=True).execute())
    assert [stream.error for stream in result.streams] == [None] * len(plans)
    return [str(stream.text) for stream in result.streams]


@pytest.mark.parametrize(
    "penalty",
    [{"repetition_penalty": 1.8}, {"frequency_penalty": 1.5, "presence_penalty": 0.7}],
    ids=["repetition", "frequency and presence"],
)
def test_a_paused_stream_says_what_it_would_have_said_under_penalties(engine_short_of_kv, penalty):
    rig = engine_short_of_kv
    plans = burst(seed=21)
    assert rig.tfctl("mode", "off").returncode == 0
    expected = [texts_of(rig, [alone(plan)], penalty)[0] for plan in plans]
    without = [texts_of(rig, [alone(plan)], {})[0] for plan in plans]
    assert all(own != other for own, other in zip(expected, without, strict=True)), "the penalty changes nothing here"
    flush_cache(rig)
    before = rig.status()["quality"]["preemption_total"]
    assert rig.tfctl("mode", "enforce").returncode == 0
    assert texts_of(rig, plans, penalty) == expected
    wait_until_idle(rig)
    status = rig.status()
    assert status["quality"]["preemption_total"] > before
    assert status["policy"]["fault_count"] == 0, rig.log()


@pytest.fixture(scope="module")
def engine_short_of_kv(_engines):
    with _engines.of_a_module(*NO_OVERLAP) as rig:
        yield rig
