"""What acks cost: how many the HTTP side takes, and how much slower the engine's steps are meanwhile.

Eight streams run on the real engine; windows with acks at the given rate (all streams in turn) alternate with windows
without. On few cores the sender of the acks itself takes time from the engine: the ratio is an upper bound.

    python bench/acks.py [--per-s 1000] [--pairs 5] [--window 4]
"""

import argparse
import asyncio
import json
import statistics
import time
from dataclasses import dataclass

import aiohttp
from engine_process import EngineProcess, running_engine

STREAMS = 8
BODY = {"model": "demo", "prompt": "The sea", "max_tokens": 3500, "ignore_eos": True, "stream": True}
ARGS = ("--max-running-requests", str(STREAMS), "--max-total-tokens", "32768", "--sleep-on-idle")


@dataclass
class Stream:
    """One stream and how far it has come."""

    rid: str
    token: str
    chunk_count: int = 0
    acked_tokens: int = 0


async def opened(session: aiohttp.ClientSession, url: str) -> tuple[Stream, "asyncio.Task[None]"]:
    """A stream that is read as it comes, once its headers are here."""
    response = await session.post(f"{url}/v1/completions", json=BODY, headers={"X-TokenFlow-Rate": "4"})
    response.raise_for_status()
    stream = Stream(response.headers["X-TokenFlow-Request-Id"], response.headers["X-TokenFlow-Ack-Token"])

    async def read() -> None:
        async with response:
            async for line in response.content:
                stream.chunk_count += line.startswith(b"data: {")

    return stream, asyncio.create_task(read())


async def ack(session: aiohttp.ClientSession, url: str, stream: Stream) -> float:
    """Seconds that one ack took. It acks one token more each time, as far as there are any."""
    stream.acked_tokens = min(stream.acked_tokens + 1, stream.chunk_count)
    begin_s = time.perf_counter()
    async with session.post(
        f"{url}/tokenflow/v1/streams/{stream.rid}/ack",
        json={"consumed_tokens": stream.acked_tokens},
        headers={"X-TokenFlow-Ack-Token": stream.token},
    ) as response:
        response.raise_for_status()
        await response.read()
    return time.perf_counter() - begin_s


async def send(
    session: aiohttp.ClientSession, url: str, streams: list[Stream], per_s: float, until_s: float
) -> list[float]:
    """Acks at that rate, eight senders at most; their times. Late ones are sent at once."""
    took_s: list[float] = []
    begin_s = time.monotonic()

    async def sender(number: int) -> None:
        for turn in range(10**9):
            due_s = begin_s + (turn * STREAMS + number) / per_s
            if due_s >= until_s or time.monotonic() >= until_s:
                return
            await asyncio.sleep(due_s - time.monotonic())
            took_s.append(await ack(session, url, streams[number]))

    await asyncio.gather(*(sender(number) for number in range(STREAMS)))
    return took_s


async def steps_in(engine: EngineProcess, work: "asyncio.Future[list[float]]") -> tuple[float, list[float]]:
    """Seconds a step, while this is done."""
    before = await asyncio.to_thread(engine.telemetry)
    took_s = await work
    after = await asyncio.to_thread(engine.telemetry)
    return (after.sent_s - before.sent_s) / (after.step_count - before.step_count), took_s


async def run(engine: EngineProcess, options: argparse.Namespace) -> dict[str, object]:
    """All windows; medians."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(None)) as session:
        pairs = [await opened(session, engine.url) for _ in range(STREAMS)]
        streams = [stream for stream, _ in pairs]
        await asyncio.sleep(3.0)
        ratios, counts, times_s = [], [], []
        for _ in range(options.pairs):
            quiet_s, _ = await steps_in(engine, asyncio.ensure_future(asyncio.sleep(options.window, [])))
            until_s = time.monotonic() + options.window
            sending = asyncio.ensure_future(send(session, engine.url, streams, options.per_s, until_s))
            busy_s, took_s = await steps_in(engine, sending)
            ratios.append(busy_s / quiet_s)
            counts.append(len(took_s) / options.window)
            times_s += took_s
        for _, reading in pairs:
            reading.cancel()
    return {
        "asked_per_s": options.per_s,
        "acks_per_s": round(statistics.median(counts)),
        "ack_ms_median": round(1e3 * statistics.median(times_s), 2),
        "step_ratio": round(statistics.median(ratios), 3),
        "step_ratios": [round(ratio, 3) for ratio in ratios],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-s", type=float, default=1000.0, help="acks a second")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--window", type=float, default=4.0, help="seconds")
    options = parser.parse_args()
    with running_engine(*ARGS) as engine:
        print(json.dumps(asyncio.run(run(engine, options))))


if __name__ == "__main__":
    main()
