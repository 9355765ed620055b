"""Watchers: they share documents for a moment and never an old one; one that does not read holds nobody up."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

from daemon_rig import Rig, write_profile

from tokenflow.wire import ModeDocument
from tokenflowd.changes import Changes
from tokenflowd.streaming import SharedLines

BENCH = Path(__file__).parents[2] / "bench" / "daemon_load.py"


class Maker:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> ModeDocument:
        self.count += 1
        return ModeDocument(mode=None, revision=self.count)


def test_watchers_of_the_same_share_a_line_and_others_do_not(monkeypatch):
    monkeypatch.setattr(SharedLines, "FRESH_S", 3600.0)
    lines, make, other = SharedLines(Changes()), Maker(), Maker()
    assert lines.line("status", make) == lines.line("status", make)
    lines.line("requests", other)
    assert (make.count, other.count) == (1, 1)


def test_after_a_change_nobody_is_told_the_old(monkeypatch):
    monkeypatch.setattr(SharedLines, "FRESH_S", 3600.0)
    changes, make = Changes(), Maker()
    lines = SharedLines(changes)
    lines.line("status", make)
    changes.notify()
    assert json.loads(lines.line("status", make))["revision"] == 2


def test_what_is_old_is_made_anew_and_not_kept(monkeypatch):
    monkeypatch.setattr(SharedLines, "FRESH_S", 0.0)
    lines, make = SharedLines(Changes()), Maker()
    for number in range(100):
        lines.line(number, make)
    assert make.count == 100
    assert len(lines._made) == 1


async def test_a_watcher_that_does_not_read_is_sent_no_more_and_holds_nobody_up(rig: Rig):
    write_profile("crowd", "crowd=300")
    await rig.client.start("crowd")
    reader, writer = await asyncio.open_unix_connection(str(rig.daemon.paths.socket), limit=1)
    writer.write(b"GET /v1/requests?watch=0.1 HTTP/1.1\r\nHost: d\r\n\r\n")
    async with asyncio.timeout(20):
        while not (pending := held_up(rig)):
            await asyncio.sleep(0.05)
    (stuck,) = pending
    waiting_bytes = stuck.transport.get_write_buffer_size()
    for _ in range(10):
        assert (await rig.client.get("/v1/status"))["engine"]["state"] in ("serving", "busy")
        await asyncio.sleep(0.11)
    assert stuck.transport.get_write_buffer_size() <= waiting_bytes, "nothing is queued behind what it does not take"
    writer.close()
    assert reader.at_eof() is False


def held_up(rig: Rig) -> list:
    """Connections whose client does not take what it is sent."""
    handlers = rig.daemon._runner.server.connections
    return [found for found in handlers if found.transport.get_write_buffer_size() > 65536]


def test_the_load_bench_runs_and_its_daemon_does_not_grow():
    options = ["--watchers", "10", "--requests", "100", "--seconds", "3", "--hz", "5", "--json"]
    outcome = subprocess.run([sys.executable, str(BENCH), *options], capture_output=True, text=True, timeout=120)
    assert outcome.returncode == 0, outcome.stderr
    load = json.loads(outcome.stdout)
    assert load["document_count"] >= 10
    assert load["rss_end_bytes"] - load["rss_begin_bytes"] < 50e6
