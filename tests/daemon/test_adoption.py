"""A daemon that comes up takes over the engine of the one before it, in whatever that was in the middle of."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from daemon_process import LIMIT_S, run_to_end, running_daemon, runtime_files, wait_for
from daemon_rig import Client, scripted_processes

from tokenflow import locations
from tokenflowd import record


@contextlib.asynccontextmanager
async def asking() -> AsyncIterator[Client]:
    client = Client(locations.user_socket())
    async with client.session:
        yield client


async def start_and_kill(*engine_args: str, phase: str = "serving", **body: object) -> dict:
    """An engine whose daemon has been killed; what it said of the engine before."""
    with running_daemon() as process:
        async with asking() as client:
            wish = {"profile": "scripted", "engine_args": list(engine_args)}
            _, operation = await client.ask("POST", "/v1/engine/start", wish)
            if phase == "starting":
                await client.engine_becomes("starting")
                wait_for(lambda: record_path().exists())
            else:
                assert (await client.finished(operation))["state"] == "done"
            if phase == "draining":
                await client.ask("POST", "/v1/engine/stop", body)
                await client.engine_becomes("draining")
                wait_for(lambda: json.loads(record_path().read_text())["phase"] == "draining")
            engine = (await client.get("/v1/status"))["engine"]
        process.kill()
        process.wait()
    return engine


def record_path() -> Path:
    return locations.engine_record(locations.user_socket())


async def end(process) -> None:
    process.terminate()
    await asyncio.to_thread(process.wait, LIMIT_S)


async def test_the_engine_of_a_killed_daemon_goes_on_under_the_next(home: Path):
    first = await start_and_kill()
    assert first["adopted"] is False
    processes = {process.pid for process in scripted_processes(home)}
    link_folder = next(name for name in runtime_files() if name.startswith("link-"))
    with running_daemon() as process:
        async with asking() as client:
            status = await client.get("/v1/status")
            engine = status["engine"]
            assert (engine["state"], engine["adopted"], engine["pid"]) == ("serving", True, first["pid"])
            same = ("url", "model", "profile", "version", "plugin")
            assert {key: engine[key] for key in same} == {key: first[key] for key in same}
            assert engine["uptime_s"] > first["uptime_s"]
            assert status["alarms"] == []
            assert {found.pid for found in scripted_processes(home)} == processes
            assert link_folder in runtime_files()
            async with client.session.get("http://daemon/v1/events") as response:
                told = [json.loads(line) for line in (await response.read()).splitlines()]
            assert [event["kind"] for event in told] == ["engine_adopted"]
            assert (await client.start())["result"]["already"] is True
            assert (await client.stop())["state"] == "done"
            assert scripted_processes(home) == []
            assert not record_path().exists()
        await end(process)
    assert runtime_files() == []


async def test_what_was_tuned_is_read_back_and_can_be_changed_on(home: Path):
    with running_daemon() as process:
        async with asking() as client:
            await client.start()
            await client.ask("PATCH", "/v1/tunables", {"changes": {"safety_factor": 3.0}})
        process.kill()
        process.wait()
    with running_daemon() as process:
        async with asking() as client:
            document = await client.get("/v1/tunables")
            [row] = [row for row in document["tunables"] if row["key"] == "safety_factor"]
            assert (row["value"], row["origin"], document["revision"]) == (3.0, "tuned", 1)
            code, document = await client.ask(
                "PATCH", "/v1/tunables", {"changes": {"quantum_s": 2.0}, "if_revision": 1}
            )
            assert (code, document["revision"]) == (200, 2)
        await end(process)


async def test_a_kept_engine_is_handed_from_daemon_to_daemon(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKENFLOW_ON_DAEMON_STOP", "keep")
    with running_daemon() as process:
        async with asking() as client:
            await client.start()
            first = (await client.get("/v1/status"))["engine"]
        await end(process)
        assert process.returncode == 0
    for number in (signal.SIGTERM, signal.SIGKILL):
        with running_daemon() as process:
            async with asking() as client:
                engine = (await client.get("/v1/status"))["engine"]
                assert (engine["pid"], engine["state"]) == (first["pid"], "serving")
            process.send_signal(number)
            process.wait(LIMIT_S)
    told = json.loads(run_to_end("--leftover", "show").stdout)
    assert told == {"pid": first["pid"], "profile": "scripted", "state": "serving"}
    assert run_to_end("--leftover", "end").returncode == 0


async def test_a_start_that_was_under_way_goes_on(home: Path):
    first = await start_and_kill("--script", "late=3", phase="starting")
    with running_daemon() as process:
        async with asking() as client:
            status = await client.get("/v1/status")
            assert (status["engine"]["state"], status["engine"]["pid"]) == ("starting", first["pid"])
            _, operation = await client.ask(
                "POST", "/v1/engine/start", {"profile": "scripted", "engine_args": ["--script", "late=3"]}
            )
            operation = await client.finished(operation)  # joins it
            assert (operation["state"], operation["result"]["pid"]) == ("done", first["pid"])
            assert (await client.get("/v1/status"))["engine"]["state"] == "serving"
        await end(process)


async def test_a_stop_that_was_under_way_is_finished(home: Path):
    await start_and_kill("--script", "streams=2", phase="draining", drain_s=2.0)
    with running_daemon() as process:
        async with asking() as client:
            await client.engine_becomes("stopped")
        await end(process)
    log = (locations.user_state_folder() / "engine.log").read_text()
    assert log.count("streams cut") == 1
    assert runtime_files() == []


async def test_the_end_of_an_adopted_engine_is_noticed(home: Path):
    first = await start_and_kill()
    with running_daemon() as process:
        async with asking() as client:
            os.kill(first["pid"], signal.SIGKILL)
            engine = (await client.engine_becomes("failed"))["engine"]
            assert f"process {first['pid']}" in engine["reason"]
            assert (await client.start())["state"] == "done"
            assert (await client.get("/v1/status"))["engine"]["adopted"] is False
        await end(process)


async def test_a_silent_one_that_was_heard_before_is_not_called_serving(home: Path, monkeypatch: pytest.MonkeyPatch):
    await start_and_kill()
    for process in scripted_processes(home):
        process.suspend()
    monkeypatch.setenv("TOKENFLOW_WEDGED_AFTER_S", "1")
    monkeypatch.setenv("TOKENFLOW_BUSY_AFTER_S", "0.5")
    monkeypatch.setenv("TOKENFLOW_TELEMETRY_STALE_AFTER_S", "0.8")
    try:
        with running_daemon() as daemon:
            async with asking() as client:
                await client.engine_becomes("wedged")
                for process in scripted_processes(home):
                    process.resume()
                await client.engine_becomes("serving")
            await end(daemon)
    finally:
        for process in scripted_processes(home):
            process.kill()


async def test_an_engine_without_its_main_process_is_ended(home: Path):
    first = await start_and_kill("--script", "whole")
    os.kill(first["pid"], signal.SIGKILL)
    assert scripted_processes(home) != []
    with running_daemon() as process:
        assert scripted_processes(home) == []
        assert runtime_files() == ["control.sock", "control.sock.lock"]
        assert not record_path().exists()
        await end(process)


async def test_an_engine_of_the_first_form_of_the_record_is_ended(home: Path):
    """Version 1 did not say how the engine was started."""
    await start_and_kill()
    table = json.loads(record_path().read_text())
    old = ("pid", "start_ticks", "group", "link_folder", "profile", "daemon_pid", "daemon_start_ticks")
    record_path().write_text(json.dumps({key: table[key] for key in old}))
    with running_daemon() as process:
        assert scripted_processes(home) == []
        assert not record_path().exists()
        await end(process)


async def test_a_newer_record_is_left_alone(home: Path):
    await start_and_kill()
    table = json.loads(record_path().read_text())
    record_path().write_text(json.dumps(table | {"version": record.RECORD_VERSION + 1, "pid": {"main": 1}}))
    ended = run_to_end()
    assert ended.returncode == 78
    assert "written by a newer tokenflowd" in ended.stderr
    assert len(scripted_processes(home)) == 2
    record_path().write_text(json.dumps(table))
    assert run_to_end("--leftover", "end").returncode == 0


async def test_another_boot_names_no_process(home: Path):
    await start_and_kill()
    table = json.loads(record_path().read_text())
    record_path().write_text(json.dumps(table | {"boot_id": "another"}))
    with running_daemon() as process:
        assert len(scripted_processes(home)) == 2  # somebody else's, for all that the record can say
        await end(process)
    for process in scripted_processes(home):
        process.kill()


def test_a_profile_that_this_daemon_cannot_read_costs_no_engine(home: Path):
    from tokenflowd import plan
    from tokenflowd.profiles import store

    made = plan.make(store.load("scripted"), [], "/model", 1234)
    entry = plan.to_record(made)
    assert plan.from_record("scripted", entry) == made
    entry.profile["flavour"] = "of the future"
    found = plan.from_record("scripted", entry)
    assert (found.url, found.profile.name, found.device) == (made.url, "scripted", made.device)
    assert found.profile.tunables == made.profile.tunables.__class__()


async def test_a_start_goes_on_when_its_daemon_is_ended_and_the_engine_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TOKENFLOW_ON_DAEMON_STOP", "keep")
    with running_daemon() as process:
        async with asking() as client:
            await client.ask("POST", "/v1/engine/start", {"profile": "scripted", "engine_args": ["--script", "late=4"]})
            await client.engine_becomes("starting")
            wait_for(lambda: record_path().exists() and scripted_processes(home))
            for found in scripted_processes(home):
                found.suspend()  # so that a question to it is under way
            await asyncio.sleep(0.5)
            first = json.loads(record_path().read_text())["pid"]
        await end(process)
    for found in scripted_processes(home):
        found.resume()
    await asyncio.sleep(0.5)
    assert first in {found.pid for found in scripted_processes(home)}
    assert record_path().exists()
    with running_daemon() as process:
        async with asking() as client:
            assert (await client.engine_becomes("serving"))["engine"]["pid"] == first
            await client.stop()
        await end(process)


async def test_a_restart_that_was_draining_is_still_a_restart_under_the_next_daemon(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TOKENFLOW_AUTOSTART", "true")
    with running_daemon() as process:
        async with asking() as client:
            first = (await client.start("scripted", "--script", "streams=2"))["result"]["pid"]
            await client.ask("POST", "/v1/engine/restart", {"drain_s": 3.0})
            await client.engine_becomes("draining")
            wait_for(lambda: json.loads(record_path().read_text())["phase"] == "draining")
        process.kill()
        process.wait()
    with running_daemon() as process:
        async with asking() as client:
            assert (await client.engine_becomes("serving"))["engine"]["pid"] != first
            await client.stop()
        await end(process)
