"""What the live view costs: `python bench/view.py [--json]`.

Headless, on made-up rows that change with every update: CPU time of one update (take the moment, sort, draw) by number
of requests, and of the feed's work beside it (decode the daemon's answer, pack the moment). Then the wall time from the
start of `tfctl top` on a terminal to its first painted row, against a real daemon without an engine. Exit code 1 where
a limit is broken.
"""

import argparse
import asyncio
import json
import os
import pty
import random
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from fcntl import ioctl
from pathlib import Path

import msgspec

from tokenflow.policy.states import Mode, RateSource, Reason, RequestState, Variant
from tokenflow.wire import (
    Capacity,
    EngineInfo,
    EngineState,
    Latency,
    PolicyInfo,
    Quality,
    RequestRow,
    RequestsDocument,
    StatusDocument,
    Tail,
    Transfers,
)
from tokenflow_tui.app import LiveView
from tokenflow_tui.moment import Moment, pack
from tokenflow_tui.reading import REFRESH_S

UPDATE_COUNT = 40
LIMIT_ROWS, LIMIT_CPU_S = 256, 0.010
PAINT_LIMIT_S = 1.0
SIZE = (140, 45)
_STATES = [RequestState.RUNNING] * 8 + [RequestState.PREEMPTED] * 4 + [RequestState.WAITING, RequestState.LOADING]


def moment_of(count: int, turn: int) -> Moment:
    """`count` requests, most of whose figures are others at every turn."""
    rng = random.Random(turn)
    rows = []
    for index in range(count):
        state = _STATES[index % len(_STATES)]
        unread, rate = rng.randint(0, 200), 4.0 + index % 20
        rows.append(
            RequestRow(
                rid=f"tf-{index * 7919:016x}",
                state=state,
                class_="reading",
                rate_tok_s=rate,
                rate_source=RateSource.HEADER,
                prompt_tokens=40,
                generated_tokens=unread + 300 + turn,
                delivered_tokens=unread + 300 + turn,
                consumed_tokens=300.0 + turn,
                unread_tokens=unread,
                runway_s=unread / rate,
                required_runway_s=1.1,
                preemptible=unread / rate > 1.1,
                kv_device_tokens=unread + 340,
                kv_host_tokens=300,
                preemption_count=index % 3,
                ttft_s=0.4,
                age_s=30.0 + turn / 2,
                reason=Reason.RUNNING_SURPLUS,
            )
        )
    status = StatusDocument(
        daemon=None,
        engine=EngineInfo(state=EngineState.SERVING, model="model", profile="profile"),
        policy=PolicyInfo(mode=Mode.ENFORCE, variant=Variant.TOKENFLOW),
        capacity=Capacity(capacity_tok_s=900.0, demand_tok_s=700.0, running_count=count),
        transfers=Transfers(),
        latency=Latency(),
        quality=Quality(ttft_s=Tail(p50=0.4, p99=1.0, count=99), raw_tok_s=800.0 + turn % 9, preemption_total=turn),
    )
    return Moment(
        at_s=1e9 + turn * REFRESH_S,
        status=status,
        requests=RequestsDocument(requests=rows, total_count=count),
    )


async def update_cpu_s(count: int, keys: list[str]) -> float:
    """Median CPU seconds of this process from one moment handed over until the screen is drawn."""
    app = LiveView(Path("/nonexistent/control.sock"))
    app._poll = lambda: None  # type: ignore[method-assign, assignment]  # moments come from here alone
    moments = [moment_of(count, turn) for turn in range(UPDATE_COUNT)]
    packed = [pack(moment) for moment in moments]
    taken_s = []
    async with app.run_test(size=SIZE) as pilot:
        app.take(moments[0], packed[0])
        await pilot.press(*keys)
        await pilot.pause()
        for moment, body in zip(moments[1:], packed[1:], strict=True):
            started_s = time.process_time()
            app.take(moment, body)
            await pilot.pause()
            taken_s.append(time.process_time() - started_s)
    return sorted(taken_s)[len(taken_s) // 2]


def feed_cpu_s(count: int) -> float:
    """Median CPU seconds of decoding the daemon's answers and packing the moment."""
    taken_s = []
    for turn in range(UPDATE_COUNT):
        moment = moment_of(count, turn)
        status, requests = msgspec.json.encode(moment.status), msgspec.json.encode(moment.requests)
        started_s = time.process_time()
        again = Moment(
            at_s=moment.at_s,
            status=msgspec.json.decode(status, type=StatusDocument),
            requests=msgspec.json.decode(requests, type=RequestsDocument),
        )
        pack(again)
        taken_s.append(time.process_time() - started_s)
    return sorted(taken_s)[len(taken_s) // 2]


def first_paint_s() -> float:
    """Wall seconds from `tfctl top` to the table's title on a terminal."""
    with tempfile.TemporaryDirectory(prefix="tf-") as folder:
        path = Path(folder) / "control.sock"
        environment = {
            **os.environ,
            "XDG_STATE_HOME": folder,
            "TERM": "xterm-256color",
            "TOKENFLOW_METRICS_LISTEN": "",  # another daemon of this host may have the port
        }
        daemon = subprocess.Popen(
            [sys.executable, "-m", "tokenflowd.main", "--socket", str(path)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until_s = time.monotonic() + 30
            while not path.exists() and time.monotonic() < until_s:
                time.sleep(0.05)
            time.sleep(0.5)
            return min(_paint_s(path, environment) for _ in range(3))
        finally:
            daemon.terminate()
            daemon.wait()


def _paint_s(path: Path, environment: dict[str, str]) -> float:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    command = [sys.executable, "-m", "tfctl.main", "top", "--socket", str(path)]
    started_s = time.monotonic()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    printed = b""
    try:
        while b"RUNWAY" not in printed:
            if time.monotonic() - started_s > 30:
                raise RuntimeError(f"nothing was painted: {printed[-500:]!r}")
            if select.select([ours], [], [], 0.1)[0]:
                printed += os.read(ours, 65_536)
        return time.monotonic() - started_s
    finally:
        process.terminate()
        process.wait()
        os.close(ours)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    for count in (16, 256, 2000):
        figures[f"update_{count}_cpu_s"] = asyncio.run(update_cpu_s(count, []))
        figures[f"feed_{count}_cpu_s"] = feed_cpu_s(count)
    figures["update_256_with_detail_cpu_s"] = asyncio.run(update_cpu_s(256, ["enter"]))
    both_s = figures["update_256_cpu_s"] + figures["feed_256_cpu_s"]
    figures["core_share_256_ratio"] = both_s / REFRESH_S
    figures["first_paint_s"] = first_paint_s()
    if options.json:
        print(json.dumps({name: round(value, 5) for name, value in figures.items()}))
    else:
        for name, value in figures.items():
            text = f"{value * 100:.1f} %" if name.endswith("_ratio") else f"{value * 1e3:.1f} ms"
            print(f"{name:<32} {text:>10}")
    is_good = figures["update_256_cpu_s"] <= LIMIT_CPU_S and figures["first_paint_s"] <= PAINT_LIMIT_S
    if not is_good:
        print(f"a limit is broken: {LIMIT_ROWS} rows {LIMIT_CPU_S} s, first paint {PAINT_LIMIT_S} s", file=sys.stderr)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
