"""Start, stop, restart, and what can go wrong with the engine meanwhile."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import psutil
import pytest
from daemon_rig import Rig, run_daemon, scripted_processes, write_profile

from tokenflow import locations


async def test_start_serves_and_stop_leaves_nothing(rig: Rig, home: Path):
    started = await rig.client.start()
    assert started["state"] == "done"
    assert started["started_by"] == f"uid={os.getuid()} pid={os.getpid()}"
    status = await rig.client.get("/v1/status")
    engine = status["engine"]
    assert (engine["state"], engine["profile"], engine["model"]) == ("serving", "scripted", "scripted")
    assert engine["url"] == started["result"]["url"]
    assert engine["plugin"] == "active"
    assert status["alarms"] == []
    assert os.getpgid(engine["pid"]) == engine["pid"]
    assert len(scripted_processes(home)) == 2

    stopped = await rig.client.stop()
    assert (stopped["state"], stopped["result"]) == ("done", {"already": False})
    assert scripted_processes(home) == []
    assert (await rig.client.get("/v1/status"))["engine"]["state"] == "stopped"
    assert sorted(path.name for path in locations.user_runtime_folder().iterdir()) == [
        "control.sock",
        "control.sock.lock",
    ]
    assert not rig.daemon.paths.record.exists()


async def test_stop_without_an_engine_is_done_at_once(rig: Rig):
    for _ in range(2):
        assert (await rig.client.stop())["result"] == {"already": True}


async def test_starting_what_runs_is_done_already_and_another_profile_is_refused(rig: Rig):
    await rig.client.start()
    again = await rig.client.start()
    assert again["result"]["already"] is True
    code, refusal = await rig.client.ask("POST", "/v1/engine/start", {"profile": "other"})
    assert (code, refusal["error"]["code"]) == (409, "conflict")
    assert refusal["error"]["hint"] == "tfctl restart other"
    for unknown in ("nope", ""):
        code, refusal = await rig.client.ask("POST", "/v1/engine/start", {"profile": unknown})
        assert (code, refusal["error"]["code"]) == (404, "profile_not_found")


async def test_restart_changes_the_profile_and_the_process(rig: Rig):
    await rig.client.start()
    before = (await rig.client.get("/v1/status"))["engine"]
    _, operation = await rig.client.ask("POST", "/v1/engine/restart", {"profile": "other"})
    assert (await rig.client.finished(operation))["state"] == "done"
    after = (await rig.client.get("/v1/status"))["engine"]
    assert (before["profile"], after["profile"]) == ("scripted", "other")
    assert before["pid"] != after["pid"]
    assert not psutil.pid_exists(before["pid"])


async def test_restart_with_a_broken_profile_leaves_the_engine_alone(rig: Rig):
    await rig.client.start()
    write_profile("broken", "serve").write_text("name =")
    code, _ = await rig.client.ask("POST", "/v1/engine/restart", {"profile": "broken"})
    assert code == 422
    assert (await rig.client.get("/v1/status"))["engine"]["state"] == "serving"


async def test_a_crash_while_starting_is_told_with_the_error(rig: Rig):
    operation = await rig.client.start("scripted", "--script", "exit=3")
    assert (operation["state"], operation["error"]["code"]) == ("failed", "engine_failed")
    assert "exited with code 3: ValueError: the weights are not there" in operation["error"]["message"]
    assert "tfctl logs" in operation["error"]["hint"]
    status = await rig.client.get("/v1/status")
    assert (status["engine"]["state"], status["engine"]["reason"]) == ("failed", operation["error"]["message"])
    assert [alarm["kind"] for alarm in status["alarms"]] == ["engine_failed"]
    assert (await rig.client.start())["state"] == "done"  # and it recovers


async def test_an_engine_that_is_never_ready_is_ended(home: Path):
    async with run_daemon(start_limit_s=1.0) as rig:
        operation = await rig.client.start("scripted", "--script", "slow")
        assert operation["error"]["code"] == "timeout"
        assert (await rig.client.get("/v1/status"))["engine"]["state"] == "failed"
        assert scripted_processes(home) == []


async def test_a_killed_detokenizer_is_named(rig: Rig):
    await rig.client.start("scripted", "--script", "whole")
    main = psutil.Process((await rig.client.get("/v1/status"))["engine"]["pid"])
    detokenizer = next(child.pid for child in main.children() if child.cmdline()[0] == "sglang::detokenizer")
    os.kill(detokenizer, signal.SIGKILL)
    reason = (await rig.client.engine_becomes("failed"))["engine"]["reason"]
    name = f"the engine's detokenizer process {detokenizer}"
    assert reason in (f"{name} was killed (signal 9)", f"{name} is gone")


@pytest.mark.parametrize("is_killed", [False, True])
async def test_shared_memory_and_temporary_files_go_with_the_engine(rig: Rig, is_killed: bool):
    await rig.client.start("scripted", "--script", "whole")
    [line] = [line for line in rig.daemon.paths.engine_log.read_text().splitlines() if line.startswith("shared ")]
    _, shared, _, temporary = line.split()
    engine = rig.daemon.supervisor.lifecycle.engine
    assert Path(temporary).parent == engine.link_folder / "tmp"
    assert Path(temporary).parent.stat().st_mode & 0o777 == 0o700
    assert Path(shared).exists()
    if is_killed:
        os.kill(engine.pid, signal.SIGKILL)
        await rig.client.engine_becomes("failed")
    await rig.client.stop()
    assert not Path(shared).exists()
    assert not Path(temporary).parent.exists()


@pytest.mark.parametrize("which", ["scheduler", "main"])
async def test_a_killed_process_is_named(rig: Rig, home: Path, which: str):
    await rig.client.start()
    main_pid = (await rig.client.get("/v1/status"))["engine"]["pid"]
    scheduler = next(process for process in scripted_processes(home) if process.pid != main_pid)
    victim = scheduler.pid if which == "scheduler" else main_pid
    os.kill(victim, signal.SIGKILL)
    status = await rig.client.engine_becomes("failed")
    name = "the engine's scheduler" if which == "scheduler" else "the engine"
    # A scheduler is not the daemon's child: when its own parent has reaped it first, nobody knows how it ended.
    endings = ("was killed (signal 9)", "is gone") if which == "scheduler" else ("was killed (signal 9)",)
    assert status["engine"]["reason"] in [f"{name} process {victim} {ending}" for ending in endings]
    assert (await rig.client.start())["state"] == "done"


async def test_sigterm_ignored(home: Path):
    async with run_daemon(stop_grace_s=0.3) as rig:
        await rig.client.start("scripted", "--script", "deaf")
        assert (await rig.client.stop())["state"] == "done"
        assert scripted_processes(home) == []


async def test_port_in_use(rig: Rig, home: Path):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        operation = await rig.client.start("scripted", "--port", str(taken.getsockname()[1]))
    assert (operation["state"], operation["error"]["code"]) == ("failed", "port_in_use")
    assert "tfctl start scripted -- --port" in operation["error"]["hint"]
    assert (await rig.client.get("/v1/status"))["engine"]["state"] == "stopped"
    assert not list(locations.user_runtime_folder().glob("link-*"))


async def test_closed_connections_do_not_count_as_a_port_in_use(rig: Rig):
    """The side that closes first keeps the address for a minute (TIME_WAIT); a restart must not wait for that."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        served, _ = listener.accept()
        served.close()
        client.recv(1)
        client.close()
    assert (await rig.client.start("scripted", "--port", str(port)))["state"] == "done"


async def test_a_stop_interrupts_a_start(rig: Rig, home: Path):
    _, start = await rig.client.ask("POST", "/v1/engine/start", {"engine_args": ["--script", "slow"]})
    await rig.client.engine_becomes("starting")
    stopped = await rig.client.stop()
    assert stopped["state"] == "done"
    assert (await rig.client.finished(start))["error"]["message"] == "the start was interrupted by a stop"
    assert scripted_processes(home) == []
    assert (await rig.client.get("/v1/status"))["engine"]["state"] == "stopped"


async def test_a_second_start_joins_the_first(rig: Rig):
    body = {"profile": "scripted"}
    (_, first), (_, second) = await asyncio.gather(
        rig.client.ask("POST", "/v1/engine/start", body), rig.client.ask("POST", "/v1/engine/start", body)
    )
    assert first["id"] == second["id"]
    code, refusal = await rig.client.ask("POST", "/v1/engine/start", {"profile": "other"})
    assert (code, refusal["error"]["hint"]) == (409, "tfctl wait --for serving")
    await rig.client.finished(first)


async def test_a_stop_drains_and_a_second_one_cuts_it_short(rig: Rig):
    await rig.client.start("scripted", "--script", "streams=3")
    _, first = await rig.client.ask("POST", "/v1/engine/stop", {"drain_s": 3600})
    status = await rig.client.engine_becomes("draining")
    while not status["engine"]["progress"]:
        status = await rig.client.engine_becomes("draining")
    assert status["engine"]["progress"].startswith("waiting for 3 streams to finish")
    second = await rig.client.stop(drain_s=0)
    assert (second["id"], second["state"]) == (first["id"], "done")
    log = rig.daemon.paths.engine_log.read_text()
    assert log.index("admission closed") < log.index("streams cut")


async def test_no_plugin_serves_all_the_same(rig: Rig):
    assert (await rig.client.start("scripted", "--script", "no-plugin"))["state"] == "done"
    status = await rig.client.get("/v1/status")
    assert (status["engine"]["state"], status["engine"]["plugin"]) == ("serving", "absent")
    assert [alarm["kind"] for alarm in status["alarms"]] == ["plugin_absent"]


async def test_an_incompatible_plugin_is_told(rig: Rig):
    assert (await rig.client.start("scripted", "--script", "incompatible"))["state"] == "done"
    status = await rig.client.get("/v1/status")
    assert (status["engine"]["plugin"], status["engine"]["plugin_detail"]) == ("incompatible", "another version")
    code, refusal = await rig.client.ask("PUT", "/v1/mode", {"mode": "off"})
    assert (code, refusal["error"]["code"]) == (501, "unsupported")


async def test_wedged(rig: Rig):
    await rig.client.start("scripted", "--script", "wedged")
    schedulers = rig.daemon.supervisor.lifecycle.engine.schedulers
    schedulers._heard[0].work_since_s = 0.0  # as if the work had been there since boot
    status = await rig.client.engine_becomes("wedged")
    assert "engine_wedged" in [alarm["kind"] for alarm in status["alarms"]]


async def test_silence_is_an_alarm(home: Path):
    async with run_daemon(telemetry_stale_after_s=0.2) as rig:
        await rig.client.start("scripted", "--script", "silent")
        async with asyncio.timeout(10):
            while "telemetry_stale" not in [a["kind"] for a in (await rig.client.get("/v1/status"))["alarms"]]:
                await asyncio.sleep(0.05)


async def test_three_cycles_leave_no_process_file_or_descriptor(rig: Rig, home: Path):
    def leftovers() -> tuple[int, list[str]]:
        files = [str(path) for path in home.rglob("*") if not path.name.startswith("engine.log")]
        return psutil.Process().num_fds(), sorted(files)

    counts = []
    for _ in range(3):
        assert (await rig.client.start())["state"] == "done"
        assert (await rig.client.stop())["state"] == "done"
        assert scripted_processes(home) == []
        counts.append(leftovers())
    assert counts[0] == counts[1] == counts[2]
    assert sorted(path.name for path in locations.user_state_folder().iterdir()) == [
        "engine.log",
        "engine.log.1",
        "engine.log.2",
    ]
