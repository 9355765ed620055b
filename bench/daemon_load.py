"""What watchers cost the daemon: its CPU time and memory with many of them and many live requests.

python bench/daemon_load.py [--watchers 50] [--hz 2] [--requests 1000] [--seconds 20] [--minutes M] [--json]

The engine is a stand-in that sends the plugin's telemetry: `--requests` live streams ten times a second, of which two
percent end and begin each second. Half of the watchers follow /v1/status, half all rows of /v1/requests (`--rows`: all
do); one more reads nothing of what it is sent, and one scrapes /metrics every second. `--minutes` makes it a soak:
the memory is taken at a tenth of the time and at the end.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import psutil

ROOT = Path(__file__).parents[1]
ENGINE = [sys.executable, str(ROOT / "tests" / "support" / "scripted_engine.py")]
PROFILE = """
name = "crowd"
[model]
path = "demo"
served_name = "crowd"
[engine]
device = "cpu"
port = 0
args = ["--script", "crowd={requests}"]
"""
_ENGINE_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured. `document_count`: lines that the watchers have read."""

    watcher_count: int
    watch_hz: float
    request_count: int
    seconds: float
    cpu_ratio: float  # of one core
    document_count: int
    read_bytes_s: float
    longest_gap_s: float  # longest wait of a watcher for its next document
    rss_begin_bytes: int
    rss_end_bytes: int


class Watcher:
    """Reads lines and notes how many, how large and how far apart."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.document_count = self.byte_count = 0
        self.gap_s = 0.0

    async def run(self, session: aiohttp.ClientSession) -> None:
        async with session.get(f"http://daemon{self.path}") as response:
            last_s = time.monotonic()
            async for chunk in response.content.iter_any():
                self.byte_count += len(chunk)
                count = chunk.count(b"\n")
                if count:
                    self.document_count += count
                    now_s = time.monotonic()
                    self.gap_s, last_s = max(self.gap_s, now_s - last_s), now_s


async def scrape(session: aiohttp.ClientSession) -> None:
    while True:
        async with session.get("http://daemon/metrics") as response:
            await response.read()
        await asyncio.sleep(1.0)


async def deaf(path: str, hz: float) -> None:
    """Asks for all rows and takes none of them."""
    _, writer = await asyncio.open_unix_connection(path)
    writer.write(f"GET /v1/requests?watch={1 / hz} HTTP/1.1\r\nHost: daemon\r\n\r\n".encode())
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


async def measure(socket: str, daemon: psutil.Process, options: argparse.Namespace) -> Load:
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.UnixConnector(socket, limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=1 << 20) as session:
        async with session.post("http://daemon/v1/engine/start", json={"profile": "crowd"}) as response:
            assert response.status == 202, await response.text()
        until_s = time.monotonic() + _ENGINE_LIMIT_S
        while time.monotonic() < until_s:
            async with session.get("http://daemon/v1/requests?limit=1") as response:
                if (await response.json())["total_count"] >= options.requests:
                    break
            await asyncio.sleep(0.2)
        else:
            raise SystemExit(f"the stand-in engine did not come up with {options.requests} requests")
        every_s = 1 / options.hz
        is_status = [n % 2 == 1 and not options.rows for n in range(options.watchers)]
        paths = [f"/v1/{'status' if of_status else 'requests'}?watch={every_s}" for of_status in is_status]
        watchers = [Watcher(path) for path in paths]
        tasks = [asyncio.create_task(watcher.run(session)) for watcher in watchers]
        tasks += [asyncio.create_task(scrape(session)), asyncio.create_task(deaf(socket, options.hz))]
        try:
            await asyncio.sleep(max(2.0, options.seconds / 10))
            rss_begin, begin, begin_s = daemon.memory_info().rss, daemon.cpu_times(), time.monotonic()
            for watcher in watchers:
                watcher.document_count = watcher.byte_count = 0
                watcher.gap_s = 0.0
            await asyncio.sleep(options.seconds)
            end, passed_s = daemon.cpu_times(), time.monotonic() - begin_s
        finally:
            for task in tasks:
                task.cancel()
            failures = [found for found in await asyncio.gather(*tasks, return_exceptions=True) if found is not None]
        broken = [found for found in failures if not isinstance(found, asyncio.CancelledError)]
        assert not broken, broken
    return Load(
        watcher_count=options.watchers,
        watch_hz=options.hz,
        request_count=options.requests,
        seconds=round(passed_s, 1),
        cpu_ratio=round((end.user + end.system - begin.user - begin.system) / passed_s, 4),
        document_count=sum(watcher.document_count for watcher in watchers),
        read_bytes_s=round(sum(watcher.byte_count for watcher in watchers) / passed_s),
        longest_gap_s=round(max((watcher.gap_s for watcher in watchers), default=0.0), 3),
        rss_begin_bytes=rss_begin,
        rss_end_bytes=daemon.memory_info().rss,
    )


def run(options: argparse.Namespace) -> Load:
    with tempfile.TemporaryDirectory(prefix="tfl-") as name:
        folder = Path(name)
        (folder / "tokenflow" / "profiles").mkdir(parents=True)
        (folder / "tokenflow" / "profiles" / "crowd.toml").write_text(PROFILE.format(requests=options.requests))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOKENFLOW_")}
        homes = ("RUNTIME_DIR", "STATE_HOME", "CONFIG_HOME", "CACHE_HOME")
        environment |= {f"XDG_{home}": str(folder) for home in homes}
        environment |= {"TOKENFLOW_METRICS_LISTEN": "", "TOKENFLOW_ENGINE_COMMAND": json.dumps(ENGINE)}
        socket = folder / "control.sock"
        command = [sys.executable, "-m", "tokenflowd.main", "--socket", str(socket)]
        with (folder / "log").open("w") as log:
            daemon = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            try:
                return asyncio.run(_when_up(socket, daemon, options))
            finally:
                daemon.terminate()
                daemon.wait(60)


async def _when_up(socket: Path, daemon: "subprocess.Popen[bytes]", options: argparse.Namespace) -> Load:
    until_s = time.monotonic() + _ENGINE_LIMIT_S
    while time.monotonic() < until_s and daemon.poll() is None:
        try:
            _, writer = await asyncio.open_unix_connection(str(socket))
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.close()
        return await measure(str(socket), psutil.Process(daemon.pid), options)
    raise SystemExit(f"the daemon did not come up: {(socket.parent / 'log').read_text()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--watchers", type=int, default=50)
    parser.add_argument("--hz", type=float, default=2.0)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--minutes", type=float, help="a soak: in place of --seconds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.minutes is not None:
        options.seconds = options.minutes * 60
    load = run(options)
    if options.json:
        print(json.dumps(asdict(load)))
        return
    watchers = f"{load.watcher_count} watchers at {load.watch_hz:g} Hz"
    print(f"{watchers}, {load.request_count} live requests, {load.seconds:g} s")
    print(f"daemon             {load.cpu_ratio * 100:6.1f} % of a core")
    print(f"documents          {load.document_count / load.seconds:6.1f} a second, {load.read_bytes_s / 1e6:.1f} MB/s")
    print(f"longest gap        {load.longest_gap_s:6.2f} s")
    print(f"memory             {load.rss_begin_bytes / 1e6:6.1f} MB, then {load.rss_end_bytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
