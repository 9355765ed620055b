"""Several schedulers on the real engine (`--dp-size`): each is watched, decides for itself and obeys, as one engine."""

import asyncio
import re
import urllib.request
from collections.abc import Iterator

import msgspec
import pytest
from engine_rig import Rig
from engine_streams import FAST, burst, endpoint, live, texts_of, wait_until_idle

from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.run import LoadRun

TWO = (*FAST, "--dp-size", "2", "--max-running-requests", "4")  # slots of each scheduler
COUNT = 16
TOKENS = 60


@pytest.fixture(scope="module")
def two(_engines) -> Iterator[Rig]:
    with _engines.of_a_module(*TWO, SGLANG_CPU_OMP_THREADS_BIND="0|1") as rig:
        yield rig


def by_scheduler(rig: Rig, metric: str) -> list[float]:
    """The sum over a metric's samples of each scheduler."""
    with urllib.request.urlopen(rig.status()["daemon"]["metrics_url"], timeout=30) as response:
        text = response.read().decode()
    found = re.findall(rf'^tokenflow_{metric}\{{(?:.*,)?scheduler="(\d)"\}} (\S+)$', text, re.MULTILINE)
    sums = [0.0, 0.0]
    for index, value in found:
        sums[int(index)] += float(value)
    return sums


def test_each_is_watched_and_enforces(two: Rig):
    status = two.status()
    assert (status["policy"]["mode"], status["policy"]["blocked_by"], status["alarms"]) == ("enforce", [], [])
    before = by_scheduler(two, "generated_tokens_total")
    # Readers so slow that they are under capacity on any machine: in overload nobody would be paused for others.
    plans = [msgspec.structs.replace(plan, rate_tok_s=0.5) for plan in burst(seed=4, count=COUNT, tokens=TOKENS)]
    assert two.tfctl("mode", "off").returncode == 0
    expected = texts_of(two, plans)
    assert two.tfctl("mode", "enforce").returncode == 0
    assert texts_of(two, plans) == expected
    wait_until_idle(two)
    rows = two.rows("--all").values()
    assert len(rows) == COUNT
    assert all(row["delivered_tokens"] == TOKENS for row in rows), "deliveries reach the scheduler that counts them"

    made = [after - was for was, after in zip(before, by_scheduler(two, "generated_tokens_total"), strict=True)]
    assert sum(made) == COUNT * TOKENS
    assert min(made) > 0
    assert min(by_scheduler(two, "preemptions_total")) > 0
    status = two.status()
    assert status["quality"]["preemption_total"] == sum(by_scheduler(two, "preemptions_total"))
    assert status["engine"]["step_count"] == sum(by_scheduler(two, "scheduler_steps_total"))
    assert (status["policy"]["fault_count"], status["alarms"]) == (0, []), two.log()


def test_all_take_a_value_or_none(two: Rig):
    revision = two.json("tune")["revision"]
    assert two.tfctl("tune", "quantum_s=2").returncode == 0
    assert two.tfctl("tune", "quantum_s=-1").returncode == 2
    document = two.json("tune")
    assert document["revision"] == revision + 2, "one of each"
    assert {row["key"]: row["value"] for row in document["tunables"]}["quantum_s"] == 2.0
    told = [event for event in two.json("events", "--kind", "tuned")["events"] if event["terms"]["key"] == "quantum_s"]
    assert sorted(event["terms"]["scheduler"] for event in told) == [0, 1]
    assert two.tfctl("tune", "--reset", "quantum_s").returncode == 0


def test_without_the_daemon_all_go_back_to_stock_scheduling(two: Rig):
    try:
        assert two.tfctl("mode", "off", "--direct").returncode == 0
        assert two.json("mode", "--direct")["mode"] == "off", "it fails where they differ"
    finally:
        assert two.tfctl("mode", "enforce").returncode == 0
    assert two.json("mode", "--direct")["mode"] == "enforce"


def test_a_request_is_held_wherever_it_runs(two: Rig):
    asyncio.run(_hold_two(two))
    wait_until_idle(two)


async def _hold_two(rig: Rig) -> None:
    plans = [
        StreamPlan(index=n, arrival_s=0.0, prompt=f"Tell me of the sea, {n}.", rate_tok_s=10.0, max_tokens=600)
        for n in range(2)
    ]
    streaming = asyncio.create_task(LoadRun(endpoint(rig), plans).execute())
    first = await asyncio.to_thread(live, rig, "running", tokens=5)
    second = await asyncio.to_thread(live, rig, "running", but=(first,), tokens=5)
    for rid in (first, second):
        held = await asyncio.to_thread(rig.tfctl, "pause", rid)
        assert held.returncode == 0, held.stderr
    for rid in (first, second):
        await asyncio.to_thread(rig.row_when, rid, lambda row: row["state"] == "preempted")
        explained = await asyncio.to_thread(rig.tfctl, "explain", rid)
        assert explained.returncode == 0, explained.stderr
    for rid in (first, second):
        assert (await asyncio.to_thread(rig.tfctl, "resume", rid)).returncode == 0
    result = await asyncio.wait_for(streaming, 300.0)
    assert [(stream.error, stream.token_count) for stream in result.streams] == [(None, 600)] * 2
    unknown = await asyncio.to_thread(rig.tfctl, "pause", "tf-nobody")
    assert unknown.returncode == 1, unknown.stderr
