"""What the daemon does by itself: restarts with a limit, crash reports, wedges, a log that grows."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from daemon_rig import Rig, run_daemon, scripted_processes, write_profile

from tokenflow import locations
from tokenflow.errors import ConfigurationError
from tokenflow.wire import EngineState
from tokenflowd import crash_report, engine_process, logfile, processes, wish
from tokenflowd.lifecycle import EngineLifecycle
from tokenflowd.restarts import RestartBook, RestartLimits
from tokenflowd.wedge_watch import WedgePatience


def test_restarts_wait_longer_each_time_and_end_at_the_limit():
    book = RestartBook(RestartLimits(count=4, window_s=100.0, backoff_s=2.0, backoff_most_s=10.0))
    waits = []
    for now_s in (0.0, 3.0, 8.0, 17.0):
        waits.append(book.wait_s(now_s))
        book.begin(now_s)
    assert waits == [2.0, 4.0, 8.0, 10.0]
    assert book.wait_s(20.0) is None
    assert (book.count(101.0), book.wait_s(101.0)) == (3, 10.0)
    assert (book.count(300.0), book.wait_s(300.0)) == (0, 2.0)


def test_without_a_limit_nothing_is_restarted():
    assert RestartBook(RestartLimits(0, 100.0, 1.0, 60.0)).wait_s(0.0) is None


async def test_a_failed_engine_is_started_again_on_its_port_until_the_limit(home: Path):
    async with run_daemon(restart_limit_count=2, restart_backoff_s=0.1) as rig:
        await rig.client.start()
        pids, urls = [], []
        for _ in range(3):
            engine = (await rig.client.engine_becomes("serving"))["engine"]
            pids.append(engine["pid"])
            urls.append(engine["url"])
            os.kill(engine["pid"], signal.SIGKILL)
            await rig.client.engine_becomes("failed")
        status = await reason_has(rig, "given up after 2 restarts in 600 s")
        assert len(set(pids)) == 3
        assert len(set(urls)) == 1
        assert "was killed (signal 9)" in status["engine"]["reason"]
        assert scripted_processes(home) == []
        assert (await rig.client.start())["state"] == "done"  # an operator is not bound by it
        assert [alarm["kind"] for alarm in (await rig.client.get("/v1/status"))["alarms"]] == ["engine_restarted"]


async def reason_has(rig: Rig, text: str) -> dict:
    async with asyncio.timeout(20):
        while text not in ((status := await rig.client.get("/v1/status"))["engine"]["reason"] or ""):
            await asyncio.sleep(0.05)
    return status


async def test_a_wish_ends_the_wait_for_a_restart(home: Path):
    async with run_daemon(restart_limit_count=5, restart_backoff_s=50.0) as rig:
        await rig.client.start()
        os.kill((await rig.client.get("/v1/status"))["engine"]["pid"], signal.SIGKILL)
        await reason_has(rig, "started again in 50 s (1 of 5)")
        assert (await rig.client.stop())["state"] == "done"
        assert (await rig.client.get("/v1/status"))["engine"]["state"] == "stopped"
        await rig.client.start()
        os.kill((await rig.client.get("/v1/status"))["engine"]["pid"], signal.SIGKILL)
        await reason_has(rig, "started again in 50 s (1 of 5)")
        assert (await rig.client.start())["state"] == "done"


async def test_a_crash_leaves_a_report_and_the_last_few_are_kept(rig: Rig):
    folder = rig.daemon.paths.crashes
    for _ in range(crash_report.KEPT_REPORTS + 1):
        started = await rig.client.start()
        await rig.client.ask("POST", "/v1/requests/rid-1/pause")
        os.kill(started["result"]["pid"], signal.SIGKILL)
        await rig.client.engine_becomes("failed")
        await rig.client.stop()  # after what is left of it
    files = sorted(folder.iterdir())
    assert len(files) == crash_report.KEPT_REPORTS
    assert files[-1].stat().st_mode & 0o777 == 0o600
    report = json.loads(files[-1].read_text())
    assert (report["role"], report["exit_code"], report["pid"]) == ("main", -9, started["result"]["pid"])
    assert {row["rid"] for row in report["requests"]} == {"rid-1", "rid-2", "rid-3"}
    assert [event["kind"] for event in report["events"]][-2:] == ["engine_started", "held"]


async def test_a_crash_whose_report_cannot_be_written_is_told_all_the_same(rig: Rig):
    rig.daemon.paths.crashes.write_text("a file in the folder's place")
    started = await rig.client.start()
    os.kill(started["result"]["pid"], signal.SIGKILL)
    assert "signal 9" in (await rig.client.engine_becomes("failed"))["engine"]["reason"]


@pytest.mark.parametrize("who", ["main", "scheduler"])
async def test_a_stopped_process_is_told_and_goes_on_with_sigcont(rig: Rig, who: str):
    started = await rig.client.start()
    main = psutil.Process(started["result"]["pid"])
    [scheduler] = main.children()
    stopped = main if who == "main" else scheduler
    stopped.suspend()
    try:
        status = await rig.client.engine_becomes("wedged")
        [alarm] = [alarm for alarm in status["alarms"] if alarm["kind"] == "engine_wedged"]
        assert f"process {stopped.pid} is stopped by a signal: kill -CONT {stopped.pid}" in alarm["message"]
    finally:
        stopped.resume()
    await rig.client.engine_becomes("serving")


async def test_an_http_process_that_does_not_answer_is_wedged(home: Path, monkeypatch: pytest.MonkeyPatch):
    async with run_daemon(wedged_after_s=4.0) as rig:
        await rig.client.start("scripted", "--script", "dumb=1")
        status = await rig.client.engine_becomes("wedged")
        [alarm] = [alarm for alarm in status["alarms"] if alarm["kind"] == "engine_wedged"]
        assert "the engine's HTTP process has not answered for" in alarm["message"]


def test_patience_counts_from_the_first_look_that_found_it_wedged():
    patience = WedgePatience(10.0)
    looks = [("wedged", 0.0), ("wedged", 9.0), ("busy", 9.5), ("wedged", 10.0), ("wedged", 19.9), ("wedged", 20.0)]
    assert [patience.is_over(EngineState(state), now_s) for state, now_s in looks] == [False] * 5 + [True]


async def test_a_wedged_engine_is_given_up_where_that_is_asked_for(home: Path):
    async with run_daemon(wedged_restart_s=1.0, restart_limit_count=1, restart_backoff_s=0.1) as rig:
        started = await rig.client.start()
        psutil.Process(started["result"]["pid"]).suspend()
        await rig.client.engine_becomes("wedged")
        await rig.client.engine_becomes("failed")
        engine = (await rig.client.engine_becomes("serving"))["engine"]
        assert engine["pid"] != started["result"]["pid"]
        [report] = rig.daemon.paths.crashes.iterdir()
        assert json.loads(report.read_text())["reason"] == "it was wedged for 1 s and has been ended"
    async with run_daemon(wedged_after_s=0.5) as rig:  # nobody has asked for it
        started = await rig.client.start()
        process = psutil.Process(started["result"]["pid"])
        process.suspend()
        await rig.client.engine_becomes("wedged")
        await asyncio.sleep(2.0)
        assert (await rig.client.get("/v1/status"))["engine"]["state"] == "wedged"
        process.resume()


async def test_an_engine_with_an_older_plugin_runs_and_what_is_missing_is_told(rig: Rig):
    await rig.client.start("scripted", "--script", "old-link")
    status = await rig.client.engine_becomes("serving")
    [alarm] = status["alarms"]
    assert alarm["kind"] == "plugin_other_version"
    assert "(link 1)" in alarm["message"]
    assert "missing: the fill of the host pool" in alarm["message"]
    code, _ = await rig.client.ask("PATCH", "/v1/tunables", {"changes": {"quantum_s": 2.0}})
    assert code == 200


async def test_the_log_of_a_running_engine_is_turned_over_and_followed_on(tmp_path: Path):
    path = tmp_path / "engine.log"
    with path.open("ab", buffering=0) as engine:
        for number in range(5):
            engine.write(f"old {number}\n".encode())
        reader = logfile.LogReader(path)
        try:
            assert reader.last_lines(2) == ["old 3", "old 4"]
            assert not logfile.turn_over(path, 1000)
            assert logfile.turn_over(path, 10)
            assert path.stat().st_size == 0
            engine.write(b"new\n")
            assert path.read_text() == "new\n"
            assert reader.read() == ["new"]
        finally:
            reader.close()
    assert path.with_name("engine.log.1").read_text().splitlines()[-1] == "old 4"
    for number in range(logfile.KEPT_LOGS + 1):
        path.write_text(f"{number} " + "x" * 20)
        assert logfile.turn_over(path, 10)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["engine.log", *(f"engine.log.{n}" for n in (1, 2, 3))]


def test_on_a_full_disk_the_old_text_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_room(source, target):
        Path(target).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(logfile.shutil, "copyfile", no_room)
    path = tmp_path / "engine.log"
    path.write_text("x" * 100)
    assert logfile.turn_over(path, 10)
    assert [(file.name, file.stat().st_size) for file in tmp_path.iterdir()] == [("engine.log", 0)]


async def test_a_disk_without_room_for_the_record_costs_no_engine(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    from tokenflowd import record

    def no_room(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record, "write", no_room)
    assert (await rig.client.start())["state"] == "done"
    assert (await rig.client.stop())["state"] == "done"
    with contextlib.suppress(FileNotFoundError):
        assert not locations.engine_record(locations.user_socket()).exists()


async def test_a_refused_wish_changes_nothing_about_the_restart_that_was_promised(home: Path):
    async with run_daemon(restart_limit_count=5, restart_backoff_s=1.0) as rig:
        await rig.client.start()
        os.kill((await rig.client.get("/v1/status"))["engine"]["pid"], signal.SIGKILL)
        await reason_has(rig, "started again in 1 s (1 of 5)")
        for path in ("start", "restart"):
            status, _ = await rig.client.ask("POST", f"/v1/engine/{path}", {"profile": "nosuch"})
            assert status == 404
        await rig.client.engine_becomes("serving")
        await rig.client.stop()


async def test_a_promise_that_a_wish_has_ended_is_not_told_any_more(home: Path):
    async with run_daemon(restart_limit_count=5, restart_backoff_s=50.0) as rig:
        await rig.client.start()
        os.kill((await rig.client.get("/v1/status"))["engine"]["pid"], signal.SIGKILL)
        await reason_has(rig, "started again in 50 s (1 of 5)")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            refused = await rig.client.start("scripted", "--port", str(taken.getsockname()[1]))
        assert refused["state"] == "failed"
        engine = (await rig.client.get("/v1/status"))["engine"]
        assert engine["state"] == "failed"
        assert "signal 9" in engine["reason"]
        assert "started again" not in engine["reason"]


async def test_a_restart_that_is_refused_is_not_what_the_next_boot_starts(home: Path, monkeypatch: pytest.MonkeyPatch):
    async def refuse(self, draft, report):
        raise ConfigurationError("there is no model", hint="make one")

    async with run_daemon(autostart=True) as rig:
        await rig.client.start()
        monkeypatch.setattr(EngineLifecycle, "check", refuse)
        _, document = await rig.client.ask("POST", "/v1/engine/restart", {"profile": "other"})
        assert (await rig.client.finished(document))["state"] == "failed"
        assert wish.read(rig.daemon.paths.wish).profile == "scripted"
        await rig.client.stop()


async def test_a_state_folder_that_has_become_read_only_hinders_no_stop(rig: Rig, monkeypatch: pytest.MonkeyPatch):
    unlink = Path.unlink

    def refuse(path, missing_ok=False):
        if path.parent == rig.daemon.paths.record.parent:
            raise OSError(30, "Read-only file system", str(path))
        unlink(path, missing_ok=missing_ok)

    await rig.client.start()
    monkeypatch.setattr(Path, "unlink", refuse)
    assert (await rig.client.stop())["state"] == "done"
    assert (await rig.client.get("/v1/status"))["engine"]["state"] == "stopped"


async def test_a_look_that_fails_once_is_not_the_last(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine_process, "_LOOK_S", 0.2)
    async with run_daemon(wedged_after_s=2.0) as rig:
        await rig.client.start()
        engine = rig.daemon.supervisor.lifecycle.engine
        seen = engine.remember_descendants
        failures = [OSError(24, "Too many open files")]
        monkeypatch.setattr(engine, "remember_descendants", lambda: seen() if not failures else _raise(failures.pop()))
        await asyncio.sleep(3.5)
        assert not failures
        assert (await rig.client.get("/v1/status"))["engine"]["state"] == "serving"
        await rig.client.stop()


def _raise(error: Exception) -> None:
    raise error


async def test_nobody_dies_who_has_got_a_pid_that_the_engine_once_used(rig: Rig):
    await rig.client.start()
    engine = rig.daemon.supervisor.lifecycle.engine
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        engine._known[bystander.pid] = 1  # of a process that began long ago
        engine.kill_now()
        await rig.client.engine_becomes("failed")
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_name_that_is_cut_within_a_character_hides_no_process(tmp_path: Path):
    program = tmp_path / ("x" * 14 + "é")  # the kernel keeps 15 bytes of a name
    shutil.copy(shutil.which("sleep"), program)
    with subprocess.Popen([str(program), "60"]) as process:
        try:
            wait_for_name(process.pid)
            assert processes.is_alive(process.pid)
            assert process.pid in processes.engine_processes(os.getpgid(process.pid), None)
        finally:
            process.kill()


def wait_for_name(pid: int) -> None:
    deadline_s = time.monotonic() + 20.0
    while b"xxxx" not in Path(f"/proc/{pid}/stat").read_bytes():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


async def test_what_is_in_force_is_known_after_answers_that_do_not_say_it(rig: Rig):
    path = write_profile("patient", "serve")
    path.write_text(path.read_text().replace("[tunables]", "[tunables]\nstarvation_bound_s = 300"))
    await rig.client.start("patient")
    await rig.client.get("/v1/tunables")
    engine = rig.daemon.supervisor.lifecycle.engine
    assert engine._starvation_bound_s() == 300.0
    await rig.client.ask("POST", "/v1/requests/rid-1/pause")
    assert engine.command_reply.tunables is None
    assert engine._starvation_bound_s() == 300.0
    await rig.client.stop()
