"""The daemon as a process of its own: exit codes, signals, its socket, what a dead one leaves."""

import json
import os
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest
from daemon_process import COMMAND, LIMIT_S, answers, run_to_end, running_daemon, runtime_files, wait_for
from daemon_rig import Client, scripted_processes

from tokenflow import locations
from tokenflow.version import __version__


async def start_engine(*engine_args: str) -> dict:
    client = Client(locations.user_socket())
    async with client.session:
        operation = await client.start("scripted", *engine_args)
        assert operation["state"] == "done", operation
        return (await client.get("/v1/status"))["engine"]


def test_version_and_usage(home: Path):
    assert run_to_end("--version").stdout == f"tokenflowd {__version__}\n"
    assert run_to_end("--colour").returncode == 2
    assert run_to_end("--log-format", "xml").returncode == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_engine_and_daemon_cleanly(home: Path, number: signal.Signals):
    with running_daemon() as process:
        assert stat.S_IMODE(locations.user_socket().stat().st_mode) == 0o600
        await start_engine()
        process.send_signal(number)
        assert process.wait(LIMIT_S) == 0
    assert runtime_files() == []
    assert scripted_processes(home) == []
    assert [path.name for path in locations.user_state_folder().iterdir()] == ["engine.log"]


async def test_a_second_signal_forces_the_end(home: Path):
    with running_daemon() as process:
        await start_engine("--script", "deaf")  # the setting's grace is 10 s
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: b"draining" in process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 1
    wait_for(lambda: scripted_processes(home) == [])
    assert runtime_files() == []


async def test_a_dying_orphan_of_the_engine_does_not_take_the_daemon_with_it(home: Path):
    """SGLang's schedulers send their parent SIGQUIT when they fail; that is the daemon once theirs has died."""
    with running_daemon("--log-format", "json") as process:
        engine = await start_engine()
        process.send_signal(signal.SIGQUIT)
        assert process.stdout is not None
        for line in process.stdout:
            if b"sigquit_passed_over" in line:
                break
        client = Client(locations.user_socket())
        async with client.session:
            assert (await client.get("/v1/status"))["engine"]["pid"] == engine["pid"]
        handled = Path(f"/proc/{engine['pid']}/status").read_text()
        (ignored,) = [line for line in handled.splitlines() if line.startswith("SigIgn:")]
        assert not int(ignored.split()[1], 16) & 1 << (signal.SIGQUIT - 1), "an engine can still be told to quit"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0


def test_a_second_daemon_is_refused(home: Path):
    with running_daemon() as process:
        second = run_to_end()
        assert second.returncode == 1
        assert second.stderr.splitlines()[-1] == (
            f"tokenflowd: a daemon is already running (pid {process.pid}) on {locations.user_socket()} (tfctl status)"
        )
        assert answers(locations.user_socket())


def test_of_two_that_start_at_once_one_wins(home: Path):
    processes = [subprocess.Popen(COMMAND, stderr=subprocess.DEVNULL) for _ in range(3)]
    try:
        wait_for(lambda: sum(process.poll() is None for process in processes) == 1)
        wait_for(lambda: answers(locations.user_socket()))
        winner = next(process for process in processes if process.poll() is None)
        assert sorted(process.wait() for process in processes if process is not winner) == [1, 1]
        winner.terminate()
        assert winner.wait(LIMIT_S) == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert runtime_files() == []


def test_a_stale_socket_is_replaced(home: Path):
    path = locations.user_socket()
    locations.ensure_private_folder(path.parent)
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(path))
    with running_daemon() as process:
        assert answers(path)
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    assert runtime_files() == []


def test_a_file_in_the_sockets_place_is_left_alone(home: Path):
    path = home / "precious"
    path.write_text("text")
    ended = run_to_end("--socket", str(path))
    assert (ended.returncode, path.read_text()) == (78, "text")
    assert "is no socket" in ended.stderr


def test_an_answering_stranger_is_left_alone(home: Path):
    path = home / "stranger.sock"
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(path))
        stranger.listen()
        ended = run_to_end("--socket", str(path))
        assert ended.returncode == 1
        assert f"(pid {os.getpid()})" in ended.stderr
        assert path.exists()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/tmp/" + "x" * 110, "107 is the limit"),
        ("/tmp/" + "x" * 90 + "/c.sock", "107 is the limit"),  # the socket would fit, the link would not
        ("/nowhere/c.sock", "its folder does not exist"),
        ("/proc/c.sock", "cannot use the socket path"),
    ],
)
def test_a_socket_path_that_cannot_be(home: Path, path: str, message: str):
    ended = run_to_end("--socket", path)
    assert ended.returncode == 78
    assert len(ended.stderr.splitlines()) == 1
    assert message in ended.stderr
    assert "tfctl --socket" in ended.stderr


def test_a_state_folder_that_cannot_be(home: Path, monkeypatch: pytest.MonkeyPatch):
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "file"))
    ended = run_to_end()
    assert ended.returncode == 78
    assert "cannot make the state folder" in ended.stderr


def test_the_usual_socket_may_be_named(home: Path):
    with running_daemon("--socket", str(locations.user_socket())) as process:
        assert stat.S_IMODE(locations.user_runtime_folder().stat().st_mode) == 0o700
        process.terminate()
        assert process.wait(LIMIT_S) == 0


def test_somebody_elses_runtime_folder_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch):
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    (home / "runtime_dir/tokenflow").symlink_to(elsewhere)
    ended = run_to_end()
    assert ended.returncode == 78
    assert "is not a folder that belongs to uid" in ended.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("busy_after_s = ", "is not valid TOML"),
        ("busy_after_s = -1\nstart_limit_s = 'soon'", "busy_after_s: input should be greater than 0"),
        ("drain_s = 1\nflavour = 2", "flavour: unknown key"),
        ("[tunables]\nsafety_factor = 0", "tunables.safety_factor: input should be greater than or equal to 1"),
        ("socket_group = 'no-such-group-here'", "there is no group 'no-such-group-here'"),
    ],
)
def test_broken_settings(home: Path, settings: str, message: str):
    path = locations.user_config_folder() / "tokenflow.toml"
    path.write_text(settings)
    ended = run_to_end()
    assert ended.returncode == 78, ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not locations.user_socket().exists()


def test_a_broken_variable(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKENFLOW_ENGINE_COMMAND", "python")
    ended = run_to_end()
    assert (ended.returncode, "Traceback" in ended.stderr) == (78, False)
    monkeypatch.setenv("TOKENFLOW_ENGINE_COMMAND", "[]")
    monkeypatch.setenv("TOKENFLOW_MODE", "loud")
    assert run_to_end().returncode == 78


async def test_the_engine_of_a_killed_daemon_is_shown_and_ended_on_request(home: Path):
    with running_daemon() as process:
        engine = await start_engine("--script", "whole")
        assert json.loads(run_to_end("--leftover", "show").stdout) is None  # its daemon lives
        refused = run_to_end("--leftover", "end")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "a daemon is already running" in refused.stderr
        process.kill()
        process.wait()
    log = (locations.user_state_folder() / "engine.log").read_text()
    [line] = [line for line in log.splitlines() if line.startswith("shared ")]
    told = {"pid": engine["pid"], "profile": "scripted", "state": "serving"}
    assert json.loads(run_to_end("--leftover", "show").stdout) == told
    ended = run_to_end("--leftover", "end")
    assert (ended.returncode, json.loads(ended.stdout)) == (0, told)
    assert scripted_processes(home) == []
    assert runtime_files() == []
    assert not Path(line.split()[1]).exists()
    assert [path.name for path in locations.user_state_folder().iterdir()] == ["engine.log"]
    assert json.loads(run_to_end("--leftover", "end").stdout) is None


def test_a_record_whose_pid_is_somebody_elses_now_harms_nobody(home: Path):
    """The pid of the record lives, but started at another time: it is not the engine."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as innocent:
        try:
            record = {
                "pid": innocent.pid,
                "start_ticks": 1,
                "group": innocent.pid,
                "link_folder": str(home / "link-12345678"),
                "profile": "scripted",
                "daemon_pid": 4_000_000,
                "daemon_start_ticks": 1,
            }
            locations.user_state_folder().mkdir(parents=True)
            (locations.user_state_folder() / "engine.json").write_text(json.dumps(record))
            with running_daemon() as process:
                assert innocent.poll() is None
                process.terminate()
                assert process.wait(LIMIT_S) == 0
            assert not (locations.user_state_folder() / "engine.json").exists()
        finally:
            innocent.kill()


async def test_two_daemons_on_two_sockets_do_not_mix(home: Path):
    with running_daemon() as usual, running_daemon("--socket", str(home / "b.sock")) as other:
        engine = await start_engine()
        client = Client(home / "b.sock")
        async with client.session:
            assert (await client.start("scripted"))["state"] == "done"
            assert (await client.get("/v1/status"))["engine"]["pid"] != engine["pid"]
        other.terminate()
        assert other.wait(LIMIT_S) == 0
        assert os.path.exists(f"/proc/{engine['pid']}")
        usual.terminate()
        assert usual.wait(LIMIT_S) == 0


async def test_a_full_disk_under_the_log_costs_the_log_alone(home: Path):
    """Where `daemon.log` lies, as `tfctl start` has it: every line raises ENOSPC."""
    with open("/dev/full", "wb") as full, subprocess.Popen([*COMMAND, "--log-format", "json"], stdout=full) as process:
        try:
            wait_for(lambda: answers(locations.user_socket()) or process.poll() is not None)
            assert process.poll() is None
            client = Client(locations.user_socket())
            async with client.session:
                operation = await client.start()
                assert operation["state"] == "done", operation
                os.kill(operation["result"]["pid"], signal.SIGKILL)
                assert "signal 9" in (await client.engine_becomes("failed"))["engine"]["reason"]
                assert (await client.stop())["state"] == "done"
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_S) == 0
        finally:
            process.kill()
