"""Demand from below half of capacity to twice of it and back on the real engine: overload begins once and ends once."""

import asyncio
import itertools
import time
from dataclasses import dataclass, field

import pytest
from engine_faults import assert_clean_log, log_on_failure, strict_checks
from engine_streams import FAST, burst, endpoint, flush_cache, texts_of, wait_until_idle

from tfctl.client import Client
from tokenflow.loadgen.client import open_session, run_stream
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.recorder import StreamRecorder
from tokenflow.loadgen.result import StreamResult

SLOTS = 4
ENGINE = (*FAST, "--max-running-requests", str(SLOTS), "--max-total-tokens", "1024", "--context-length", "1024")
# What each reader asks for: two of them are below half of capacity even where the machine is slower for a while than it
# was when capacity was measured, ten are twice of it.
SHARE_OF_CAPACITY = 0.2
FEW, MANY = 2, 10
OUTPUT_TOKENS = 80
LIMIT_S = 60.0
APART_S = 0.1  # arrivals and first tokens that are closer than this may be in either order: one prefill takes several


@dataclass
class Sample:
    """The daemon's status at one moment."""

    at_s: float
    is_overloaded: bool
    demand_ratio: float
    moved_bytes: int


@dataclass
class Readers:
    """Each has a stream open all the time: the next one is sent when the last one has ended."""

    endpoint: Endpoint
    rate_tok_s: float
    results: list[StreamResult] = field(default_factory=list)
    wanted: int = 0
    begin_s: float = field(default_factory=time.monotonic)

    def now_s(self) -> float:
        return time.monotonic() - self.begin_s

    async def read(self, number: int) -> None:
        """Reads while at least `number` readers are wanted."""
        sent = 0
        async with open_session(self.endpoint) as session:
            while self.wanted >= number:
                prompt = f"Reader {number} asks question {sent}."
                plan = StreamPlan(
                    index=sent, arrival_s=0.0, prompt=prompt, rate_tok_s=self.rate_tok_s, max_tokens=OUTPUT_TOKENS
                )
                recorder = StreamRecorder(plan)
                await run_stream(session, self.endpoint, recorder, self.now_s)
                self.results.append(recorder.result())
                sent += 1


class Watch:
    """Samples the status five times a second."""

    def __init__(self, rig, readers: Readers) -> None:
        self._client = Client(rig.runtime / "tokenflow" / "control.sock")
        self._readers = readers
        self.samples: list[Sample] = []

    async def until(self, condition, limit_s: float = LIMIT_S) -> None:
        deadline_s = time.monotonic() + limit_s
        while True:
            status = await asyncio.to_thread(self._client.get, "/v1/status", dict)
            capacity, transfers = status["capacity"], status["transfers"]
            ratio = capacity["demand_tok_s"] / (capacity["capacity_tok_s"] or float("inf"))
            moved_bytes = transfers["d2h"]["total_bytes"] + transfers["h2d"]["total_bytes"]
            self.samples.append(Sample(self._readers.now_s(), status["policy"]["overload"], ratio, moved_bytes))
            if condition(self.samples[-1]):
                return
            assert time.monotonic() < deadline_s, self.samples[-20:]
            await asyncio.sleep(0.2)

    async def stay(self, duration_s: float) -> None:
        end_s = self._readers.now_s() + duration_s
        await self.until(lambda sample: sample.at_s >= end_s)


@pytest.mark.timeout(400)
def test_overload_begins_once_and_ends_once_and_serves_in_order_of_arrival(own_engine):
    strict_checks(own_engine.environment)
    own_engine.start(*ENGINE)
    with log_on_failure(own_engine):
        assert own_engine.tfctl("mode", "enforce").returncode == 0
        texts_of(own_engine, burst(seed=31, count=12, tokens=80))  # makes capacity known
        readers = Readers(endpoint(own_engine), capacity_tok_s(own_engine) * SHARE_OF_CAPACITY)
        watch = Watch(own_engine, readers)
        asyncio.run(rise_and_fall(readers, watch))
        samples, results = watch.samples, readers.results
        report(readers, samples)

        assert [result.error for result in results] == [None] * len(results)
        assert {result.token_count for result in results} == {OUTPUT_TOKENS}
        begin_s, end_s = overload_of(samples)
        assert_first_come_first_served(results, begin_s, end_s)
        assert_no_transfer_storm(own_engine, samples, results, begin_s, end_s)
        wait_until_idle(own_engine)
        assert own_engine.status()["policy"]["fault_count"] == 0
        assert_clean_log(own_engine)
        flush_cache(own_engine)
    own_engine.stop()
    own_engine.assert_nothing_left()


def capacity_tok_s(rig) -> float:
    capacity = rig.status()["capacity"]["capacity_tok_s"]
    assert capacity
    return float(capacity)


async def rise_and_fall(readers: Readers, watch: Watch) -> None:
    """Little, then twice of capacity for some seconds of overload, then little until overload is over."""
    readers.wanted = MANY
    tasks = [asyncio.create_task(readers.read(number)) for number in range(1, FEW + 1)]
    await watch.stay(4.0)
    tasks += [asyncio.create_task(readers.read(number)) for number in range(FEW + 1, MANY + 1)]
    await watch.until(lambda sample: sample.is_overloaded)
    await watch.stay(8.0)
    readers.wanted = FEW
    await watch.until(lambda sample: not sample.is_overloaded)
    await watch.stay(4.0)
    readers.wanted = 0
    await asyncio.gather(*tasks)


def overload_of(samples: list[Sample]) -> tuple[float, float]:
    """When overload was first and last seen. It must have begun once and ended once."""
    switches = sum(a.is_overloaded != b.is_overloaded for a, b in itertools.pairwise(samples))
    assert not samples[0].is_overloaded
    assert not samples[-1].is_overloaded
    assert switches == 2, [(round(sample.at_s, 1), round(sample.demand_ratio, 2)) for sample in samples]
    times_s = [sample.at_s for sample in samples if sample.is_overloaded]
    return times_s[0], times_s[-1]


def assert_first_come_first_served(results: list[StreamResult], begin_s: float, end_s: float) -> None:
    """Of those that came in overload, nobody got a first token before somebody who had come clearly earlier."""
    starts = sorted(
        (result.sent_s, result.token_times_s[0])
        for result in results
        if result.sent_s is not None and result.sent_s > begin_s and result.token_times_s[0] < end_s
    )
    assert len(starts) >= MANY
    overtaken = [
        (first, second)
        for index, first in enumerate(starts)
        for second in starts[index + 1 :]
        if second[0] - first[0] > APART_S and first[1] - second[1] > APART_S
    ]
    assert overtaken == []


def assert_no_transfer_storm(rig, samples, results, begin_s: float, end_s: float) -> None:
    """Nothing is moved to and fro: a token's KV is written once and seldom loaded."""
    inside = [sample for sample in samples if begin_s <= sample.at_s <= end_s]
    moved_bytes = inside[-1].moved_bytes - inside[0].moved_bytes
    made_tokens = sum(begin_s <= time_s <= end_s for result in results for time_s in result.token_times_s) + sum(
        result.prompt_tokens or 0 for result in results if begin_s <= (result.sent_s or 0.0) <= end_s
    )
    moved_tokens = moved_bytes / kv_bytes_per_token(rig)
    print(
        f"in overload: {moved_bytes / (end_s - begin_s) / 1e6:.2f} MB/s moved, "
        f"{moved_tokens / made_tokens:.2f} times the KV that was made"
    )
    assert moved_tokens <= 3.0 * made_tokens


def kv_bytes_per_token(rig) -> float:
    """Of the two-layer model in float32: keys and values of 3 heads of 64."""
    return 2 * 2 * 3 * 64 * 4


def report(readers: Readers, samples: list[Sample]) -> None:
    print(f"\neach reader asks for {readers.rate_tok_s:.0f} tok/s; {len(readers.results)} streams")
    previous = None
    for sample in samples:
        if sample.is_overloaded is not previous:
            previous = sample.is_overloaded
            print(f"{sample.at_s:6.1f} s: overload {sample.is_overloaded}, demand {sample.demand_ratio:.2f}")
    print("demand by the second:", [f"{sample.demand_ratio:.2f}" for sample in samples[::5]])
