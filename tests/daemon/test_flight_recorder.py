"""The flight recorder: bounded in size and age, and never in anybody's way."""

import asyncio
import gzip
import json
from pathlib import Path

import pytest
from daemon_rig import run_daemon

from tokenflowd import flight_recorder
from tokenflowd.flight_recorder import FlightStore


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_full_segments_are_packed_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flight_recorder, "SEGMENT_BYTES", 1000)
    store = FlightStore(tmp_path / "flight", limit_bytes=1500, limit_age_s=1e9)
    for number in range(400):
        store.append(f'{{"number": {number}}}\n'.encode(), now_s=1000.0 + number)
        assert size_of(store.folder) <= 1500 + 1000
    packed = sorted(store.folder.glob("*.gz"))
    assert packed
    lines = [json.loads(line) for path in packed for line in gzip.decompress(path.read_bytes()).splitlines()]
    lines += [json.loads(line) for line in (store.folder / "flight.jsonl").read_text().splitlines()]
    numbers = [line["number"] for line in lines]
    assert numbers == list(range(numbers[0], 400))  # the newest, without a gap
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in store.folder.iterdir())


def test_what_is_old_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flight_recorder, "SEGMENT_BYTES", 10)
    store = FlightStore(tmp_path, limit_bytes=10_000, limit_age_s=100.0)
    for now_s in (1000.0, 1050.0, 1101.0):
        store.append(b'{"a": "long enough"}\n', now_s)
    assert [path.name for path in sorted(tmp_path.glob("*.gz"))] == [
        "flight-000000001050000.jsonl.gz",
        "flight-000000001101000.jsonl.gz",
    ]


def test_a_disk_that_fills_while_packing_costs_the_segment_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(flight_recorder, "SEGMENT_BYTES", 10)
    monkeypatch.setattr(flight_recorder.shutil, "copyfileobj", no_room)
    store = FlightStore(tmp_path, limit_bytes=10_000, limit_age_s=100.0)
    with pytest.raises(OSError, match="No space"):
        store.append(b'{"a": "long enough"}\n', 1000.0)
    assert list(tmp_path.iterdir()) == []


async def test_the_daemon_writes_moments_while_an_engine_is_there(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flight_recorder, "INTERVAL_S", 0.1)
    async with run_daemon(flight_recorder_bytes=1_000_000) as rig:
        path = rig.daemon.paths.flight / "flight.jsonl"
        await asyncio.sleep(0.5)
        assert not path.exists()  # nothing runs, nothing happens
        await rig.client.start()
        await rig.client.ask("POST", "/v1/requests/rid-1/pause")
        async with asyncio.timeout(20):
            while not path.exists() or b'"held"' not in path.read_bytes():
                await asyncio.sleep(0.05)
    moments = [json.loads(line) for line in path.read_text().splitlines()]
    assert {moment["schema"] for moment in moments} == {"tokenflow.flight/1"}
    kinds = [event["kind"] for moment in moments for event in moment["events"]]
    assert kinds[:2] == ["engine_started", "held"]
    assert len([kind for kind in kinds if kind == "held"]) == 1
    assert {row["rid"] for row in moments[-1]["requests"]} <= {"rid-1", "rid-2", "rid-3"}


async def test_a_folder_that_cannot_be_made_stops_nothing(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flight_recorder, "INTERVAL_S", 0.05)
    async with run_daemon(flight_recorder_bytes=1_000_000) as rig:
        rig.daemon.paths.flight.write_text("a file in the folder's place")
        assert (await rig.client.start())["state"] == "done"
        await asyncio.sleep(0.3)
        assert (await rig.client.get("/v1/status"))["engine"]["state"] == "serving"
