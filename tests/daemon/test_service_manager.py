"""The daemon under a service manager: real datagrams, a real passed descriptor, reloads, and what it wants started."""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import COMMAND, LIMIT_S, answers, wait_for
from daemon_rig import ENGINE, Client, run_daemon, scripted_processes

from tokenflow import locations
from tokenflow.errors import ConfigurationError
from tokenflow.wire import Capacity, EngineInfo, EngineState, Latency, PolicyInfo, Quality, StatusDocument, Transfers
from tokenflowd import heartbeat, service_manager
from tokenflowd.service_manager import ServiceManager


class Manager:
    """Receives what a daemon says, as systemd would."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.heard: list[dict[str, str]] = []

    def next(self, *wanted: str) -> dict[str, str]:
        """The next datagram that has all of these keys."""
        deadline_s = time.monotonic() + LIMIT_S
        while (remaining_s := deadline_s - time.monotonic()) > 0:
            self.socket.settimeout(remaining_s)
            text = self.socket.recv(4096).decode()
            message = dict(line.split("=", 1) for line in text.splitlines())
            self.heard.append(message)
            if set(wanted) <= message.keys():
                return message
        raise AssertionError(f"{wanted} never came: {self.heard}")


@pytest.fixture
def manager(home: Path) -> Iterator[Manager]:
    found = Manager(home / "notify")
    yield found
    found.socket.close()


@contextlib.contextmanager
def daemon(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, **variables}
    with subprocess.Popen([*COMMAND, *arguments], env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_the_life_of_a_daemon_as_the_manager_hears_it(home: Path, manager: Manager):
    with daemon(NOTIFY_SOCKET=str(manager.path), WATCHDOG_USEC="300000") as process:
        ready = manager.next("READY")
        assert ready == {"READY": "1", "STATUS": "engine stopped"}
        assert answers(locations.user_socket())  # ready means that it answers
        for _ in range(3):
            manager.next("WATCHDOG")
        client = Client(locations.user_socket())
        async with client.session:
            await client.start()
        while "engine serving (profile scripted): " not in manager.next("STATUS")["STATUS"]:
            pass
        environ = Path(f"/proc/{scripted_processes(home)[0].pid}/environ").read_bytes()
        assert b"NOTIFY_SOCKET" not in environ
        assert b"WATCHDOG_USEC" not in environ
        process.send_signal(signal.SIGHUP)
        reloading = manager.next("RELOADING")
        assert abs(int(reloading["MONOTONIC_USEC"]) / 1e6 - time.monotonic()) < LIMIT_S
        manager.next("READY")
        process.send_signal(signal.SIGTERM)
        assert manager.next("STOPPING")["STATUS"] == "ending"
        assert int(manager.next("EXTEND_TIMEOUT_USEC")["EXTEND_TIMEOUT_USEC"]) > 0
        assert process.wait(LIMIT_S) == 0


def test_a_watchdog_for_somebody_else_and_an_abstract_address(monkeypatch: pytest.MonkeyPatch):
    name = f"tokenflow-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}")
        environment = {"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1", "HOME": "/"}
        found = ServiceManager(environment)
        assert (found.is_present, found.watchdog_s, environment) == (True, None, {"HOME": "/"})
        found.status("two\nlines")
        assert receiver.recv(100) == b"STATUS=two lines"
    found.alive()  # nobody listens any more: told once in the log, and no harm
    found.alive()


def test_without_a_manager_nothing_is_sent():
    found = ServiceManager({})
    assert (found.is_present, found.watchdog_s, found.passed) == (False, None, [])
    found.ready("nobody hears")


async def test_a_wrong_file_keeps_the_old_settings_and_a_right_one_is_taken(home: Path, manager: Manager):
    path = locations.user_config_folder() / "tokenflow.toml"
    path.write_text("default_profile = 'scripted'\n")
    with daemon(NOTIFY_SOCKET=str(manager.path)) as process:
        manager.next("READY")
        path.write_text("default_profile = 7\nflavour = 1\n")
        process.send_signal(signal.SIGHUP)
        manager.next("RELOADING")
        assert "the reload failed, the old settings stay" in manager.next("READY")["STATUS"]
        client = Client(locations.user_socket())
        async with client.session:
            _, operation = await client.ask("POST", "/v1/engine/start", {})
            assert (await client.finished(operation))["result"]["profile"] == "scripted"
            await client.stop()
            path.write_text("default_profile = 'other'\n")
            process.send_signal(signal.SIGHUP)
            assert manager.next("READY")["STATUS"] == "engine stopped"
            _, operation = await client.ask("POST", "/v1/engine/start", {})
            assert (await client.finished(operation))["result"]["profile"] == "other"
        process.terminate()
        process.wait(LIMIT_S)


ACTIVATE = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[2]))
listener.bind(sys.argv[1])
if sys.argv[2] == "SOCK_STREAM":
    listener.listen()
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS=sys.argv[3], LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES="control")
os.execv(sys.executable, [sys.executable, "-m", "tokenflowd.main", *sys.argv[4:]])
"""


@contextlib.contextmanager
def activated(path: Path, kind: str = "SOCK_STREAM", count: str = "1", *arguments: str):
    command = [sys.executable, "-c", ACTIVATE, str(path), kind, count, *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_a_passed_socket_is_served_and_left_where_it_is(home: Path):
    path = home / "passed.sock"
    with activated(path) as process:
        wait_for(lambda: answers(path))
        inode = path.stat().st_ino
        client = Client(path)
        async with client.session:
            status = await client.get("/v1/status")
            assert (status["daemon"]["socket"], status["daemon"]["pid"]) == (str(path), process.pid)
            await client.start()
            main = scripted_processes(home)[0]
            assert b"LISTEN_" not in Path(f"/proc/{main.pid}/environ").read_bytes()
            assert path.stat().st_ino == inode
            await client.stop()
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    assert path.stat().st_ino == inode  # the manager's to remove
    assert not path.with_name("passed.sock.lock").exists()


@pytest.mark.parametrize(
    ("kind", "count", "arguments", "message"),
    [
        ("SOCK_DGRAM", "1", [], "no listening UNIX stream socket"),
        ("SOCK_STREAM", "2", [], "2 sockets were passed"),
        ("SOCK_STREAM", "1", ["--socket", "/tmp/another.sock"], "--socket says /tmp/another.sock"),
    ],
)
def test_a_passed_socket_that_cannot_be(home: Path, kind: str, count: str, arguments: list[str], message: str):
    with activated(home / "passed.sock", kind, count, *arguments) as process:
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 78
    assert message in errors


def test_descriptors_for_another_process_are_not_ours():
    environment = {"LISTEN_FDS": "1", "LISTEN_PID": "1"}
    assert ServiceManager(environment).passed == []
    assert environment == {}
    assert service_manager.control_socket_of([]) is None
    with pytest.raises(ConfigurationError):
        service_manager.control_socket_of([3, 4])


def test_the_line_of_systemctl_status():
    def line(state: EngineState, **fields) -> str:
        engine = EngineInfo(state=state, profile="p", **fields)
        capacity = Capacity(running_count=3, waiting_count=1, preempted_count=2)
        parts = (PolicyInfo(), capacity, Transfers(), Latency(), Quality())
        names = ("policy", "capacity", "transfers", "latency", "quality")
        return heartbeat.line_of(StatusDocument(daemon=None, engine=engine, **dict(zip(names, parts, strict=True))))

    assert line(EngineState.SERVING) == "engine serving (profile p): 3 running, 1 waiting, 2 preempted"
    assert line(EngineState.STARTING, progress="loading weights 41%") == (
        "engine starting (profile p): loading weights 41%"
    )
    assert line(EngineState.FAILED, reason="it died") == "engine failed (profile p): it died"


async def test_what_was_started_and_not_stopped_is_started_with_the_daemon(home: Path, monkeypatch: pytest.MonkeyPatch):
    """As after a reboot: neither the daemon nor the engine is there any more."""
    monkeypatch.setenv("TOKENFLOW_AUTOSTART", "true")
    socket_path = home / "s.sock"
    with daemon("--socket", str(socket_path)) as process:
        wait_for(lambda: answers(socket_path))
        client = Client(socket_path)
        async with client.session:
            assert (await client.start("scripted", "--script", "serve"))["state"] == "done"
        process.kill()
        process.wait()
    for engine in scripted_processes(home):
        engine.kill()
    wait_for(lambda: scripted_processes(home) == [])
    for is_expected in (True, False):
        with daemon("--socket", str(socket_path)) as process:
            wait_for(lambda: answers(socket_path))
            client = Client(socket_path)
            async with client.session:
                if is_expected:
                    status = await client.engine_becomes("serving")
                    assert status["engine"]["profile"] == "scripted"
                    await client.stop()
                else:
                    assert (await client.get("/v1/status"))["engine"]["state"] == "stopped"
            process.terminate()
            process.wait(LIMIT_S)


async def test_an_autostart_that_fails_is_tried_again(home: Path):
    """As on a host that has just booted: what the engine needs comes a moment later."""
    async with run_daemon(autostart=True, restart_limit_count=5, restart_backoff_s=0.1) as rig:
        await rig.client.start()
        rig.daemon.supervisor.stop(None, "the test, as a reboot", is_wish_kept=True)
        await rig.client.engine_becomes("stopped")
    ready = home / "ready"
    program = home / "program"
    program.write_text(f'#!/bin/sh\n[ -e {ready} ] || exit 3\nexec {shlex.join(ENGINE)} "$@"\n')
    program.chmod(0o755)
    async with run_daemon(
        autostart=True, restart_limit_count=50, restart_backoff_s=0.1, engine_command=[str(program)]
    ) as rig:
        status = await rig.client.engine_becomes("failed")
        ready.touch()
        status = await rig.client.engine_becomes("serving")
        assert status["engine"]["profile"] == "scripted"


async def test_a_service_keeps_its_engine_and_says_so_in_its_settings(home: Path):
    from tokenflowd import settings

    plain, service = settings.load(), settings.load(as_service=True)
    assert (plain.on_daemon_stop, plain.autostart, plain.restart_limit_count) == ("stop", False, 0)
    assert (service.on_daemon_stop, service.autostart, service.restart_limit_count) == ("keep", True, 5)
    (locations.user_config_folder() / "tokenflow.toml").write_text("on_daemon_stop = 'stop'\nautostart = false\n")
    told = settings.load(as_service=True)
    assert (told.on_daemon_stop, told.autostart, told.restart_limit_count) == ("stop", False, 5)


def test_the_log_is_json_lines_on_stdout(home: Path):
    with subprocess.Popen(
        [*COMMAND, "--log-format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        wait_for(lambda: answers(locations.user_socket()))
        process.terminate()
        out, errors = process.communicate(timeout=LIMIT_S)
    lines = [json.loads(line) for line in out.splitlines()]
    told = [line["event"] for line in lines]
    assert (told[0], told[-2:]) == ("daemon_serves", ["daemon_ends", "daemon_ended"])
    assert all(line["level"] and line["timestamp"] for line in lines)
    assert errors == b""
