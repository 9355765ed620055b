"""`tfctl start`: with a daemon, without one, and when things go wrong. The spawned daemons are small scripts."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tfctl import daemon as bringing_up
from tfctl.client import answers
from tokenflow.errors import EngineFailedError, HostError
from tokenflow.wire import EngineState

SUPPORT = Path(__file__).parents[1] / "support"


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def spawns(home, monkeypatch):
    """Makes `tfctl start` spawn a script in place of tokenflowd. Returns a function that sets the script's end."""
    pid_file = home / "pid"

    def use(body: str) -> Path:
        script = home / "daemon.py"
        script.write_text(
            f"import os, sys, time, signal\nsys.path.insert(0, {str(SUPPORT)!r})\nfrom pathlib import Path\n"
            f"Path({str(pid_file)!r}).write_text(str(os.getpid()))\n"
            f"socket = Path(sys.argv[1])\n" + textwrap.dedent(body)
        )
        monkeypatch.setattr(bringing_up, "daemon_command", lambda socket: [sys.executable, str(script), str(socket)])
        return pid_file

    yield use
    if pid_file.exists() and not is_gone(int(pid_file.read_text())):
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


SERVING = """
    from fake_daemon import FakeDaemon
    from tokenflow.wire import EngineState
    signal.signal(signal.SIGTERM, lambda *_: (fake.close(), os._exit(0)))
    fake = FakeDaemon(socket, EngineState.STOPPED)
    {extra}
    while True:
        time.sleep(1)
"""


def test_progress_then_the_address_and_the_next_command(tfctl, daemon):
    daemon.state = EngineState.STOPPED
    outcome = tfctl("start", "demo-cpu")
    assert outcome.code == 0
    assert outcome.err.splitlines() == ["loading weights", "warming up"]
    assert outcome.out.splitlines() == [
        "serving SmolLM2-135M-Instruct at http://127.0.0.1:30000 (profile demo-cpu)",
        "requests: tfctl ps; live view: tfctl top; stop: tfctl stop",
    ]


@pytest.mark.parametrize("option", ["-q", "--json"])
def test_quiet_and_json_show_no_progress(option, tfctl, daemon):
    daemon.state = EngineState.STOPPED
    outcome = tfctl("start", "demo-cpu", option)
    assert (outcome.code, outcome.err) == (0, "")
    if option == "--json":
        assert json.loads(outcome.out)["state"] == "done"
    else:
        assert outcome.out == ""


def test_words_behind_the_dashes_go_to_the_engine(tfctl, daemon):
    tfctl("start", "--no-wait", "demo-cpu", "--", "--port", "30001", "--json")
    (body,) = [json.loads(body) for method, path, body in daemon.seen if path == "/v1/engine/start"]
    assert body == {"profile": "demo-cpu", "engine_args": ["--port", "30001", "--json"]}


def test_without_a_name_the_profile_that_ran_last(tfctl, daemon):
    daemon.state = EngineState.FAILED
    tfctl("start", "--no-wait")
    (body,) = [json.loads(body) for method, path, body in daemon.seen if path == "/v1/engine/start"]
    assert body["profile"] == "demo-cpu"


def test_without_a_name_and_a_past_it_says_what_it_takes(tfctl, daemon):
    daemon.state = EngineState.STOPPED
    outcome = tfctl("start")
    (body,) = [json.loads(body) for method, path, body in daemon.seen if path == "/v1/engine/start"]
    assert body["profile"] is None
    assert "no profile named: taking" in outcome.err


def test_the_engines_error_is_the_commands(tfctl, daemon):
    daemon.state = EngineState.STOPPED
    daemon.start_error = EngineFailedError("out of memory", hint="tfctl logs")
    outcome = tfctl("start", "demo-cpu")
    assert outcome.code == 1
    assert "error: out of memory\nhint:  tfctl logs\n" in outcome.err


def test_a_time_limit_ends_the_waiting_only(tfctl, daemon):
    daemon.state = EngineState.STOPPED
    daemon.operation_steps = [("loading weights", 0.1)] * 1000
    outcome = tfctl("start", "demo-cpu", "--timeout", "0.5")
    assert outcome.code == 75
    assert "tfctl status --watch" in outcome.err


def test_a_daemon_is_brought_up_and_left_running(tfctl, spawns, socket_path):
    pid = spawns(SERVING.format(extra=""))
    outcome = tfctl("start", "demo-cpu")
    assert outcome.code == 0, outcome
    assert answers(socket_path)
    assert not is_gone(int(pid.read_text()))
    assert os.getsid(int(pid.read_text())) == int(pid.read_text())


def test_a_failed_start_leaves_no_daemon_behind(tfctl, spawns, socket_path):
    failing = "from tokenflow.errors import HostError; fake.start_error = HostError('no torch', hint='install it')"
    pid = spawns(SERVING.format(extra=failing))
    outcome = tfctl("start", "demo-cpu")
    assert outcome.code == HostError.exit_code
    assert "error: no torch" in outcome.err
    assert is_gone(int(pid.read_text()))
    assert not answers(socket_path)


def test_a_refused_profile_leaves_no_daemon_behind(tfctl, spawns, socket_path):
    pid = spawns(SERVING.format(extra=""))
    outcome = tfctl("start", "nosuch", "--json")
    assert outcome.code == 78
    assert json.loads(outcome.out)["error"]["code"] == "profile_not_found"
    assert is_gone(int(pid.read_text()))


def test_a_start_that_goes_on_keeps_its_daemon(tfctl, spawns, socket_path):
    slow = "fake.operation_steps = [('loading weights', 0.1)] * 1000; fake.state = EngineState.STARTING"
    pid = spawns(SERVING.format(extra=slow))
    assert tfctl("start", "demo-cpu", "--timeout", "0.5").code == 75
    assert not is_gone(int(pid.read_text()))


def test_a_daemon_that_dies_tells_why(tfctl, spawns):
    spawns(
        """
        print('{"event": "some log line"}')
        print("tokenflowd: tokenflow.toml (user): line 3 (correct it)")
        sys.exit(78)
        """
    )
    outcome = tfctl("start", "demo-cpu")
    assert outcome.code == 78
    assert outcome.err == "error: tokenflow.toml (user): line 3\nhint:  correct it\n"


def test_a_daemon_that_crashes_shows_its_last_line(tfctl, spawns):
    spawns("raise RuntimeError('boom')")
    outcome = tfctl("start", "demo-cpu")
    assert outcome.code == 1
    assert "ended with exit code 1 while it started: RuntimeError: boom" in outcome.err
    assert "daemon.log" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_killed_daemon_is_named_so(tfctl, spawns):
    spawns("os.kill(os.getpid(), signal.SIGKILL)")
    assert "ended by signal 9" in tfctl("start", "demo-cpu").err


@pytest.mark.parametrize("said", ["", '{"event": "engine spawned", "level": "info"}', "plain words"])
def test_a_daemon_that_is_killed_during_the_start_has_ended(said, tfctl, spawns):
    dying = f"""
    fake.operation_steps = [('loading weights', 0.1)] * 1000
    print({said!r}, flush=True)
    import threading
    def die():
        while not any(path.startswith('/v1/operations') for _, path, _ in fake.seen):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=die).start()
"""
    spawns(textwrap.dedent(SERVING).format(extra=textwrap.dedent(dying)))
    outcome = tfctl("start", "demo-cpu")
    assert outcome.code == 69
    words = {"": "", "plain words": "; its last words: plain words"}.get(said, "; its last words: engine spawned")
    assert f"error: the daemon has ended (signal 9{words})\nhint:  start it again: tfctl start\n" in outcome.err


def test_a_daemon_that_never_answers_is_ended(tfctl, spawns, monkeypatch):
    monkeypatch.setattr(bringing_up, "START_LIMIT_S", 1.0)
    pid = spawns("time.sleep(600)")
    outcome = tfctl("start", "demo-cpu")
    assert outcome.code == 75
    assert is_gone(int(pid.read_text()))


def test_the_daemon_extra_is_missing(tfctl, monkeypatch):
    monkeypatch.setattr(bringing_up, "_has_module", lambda name: name != "aiohttp")
    outcome = tfctl("start", "demo-cpu")
    assert outcome.code == 78
    assert "missing: aiohttp" in outcome.err
    assert "pip install 'tokenflow-serving[daemon]'" in outcome.err


def test_a_socket_path_that_no_kernel_takes(tfctl, home):
    outcome = tfctl("start", "demo-cpu", "--socket", f"/tmp/{'x' * 120}.sock")
    assert outcome.code == 78
    assert "107 is the limit" in outcome.err


def test_a_state_folder_that_cannot_be_written(tfctl, home, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "file"))
    monkeypatch.setattr(bringing_up, "_check_installed", lambda: None)
    outcome = tfctl("start", "demo-cpu")
    assert outcome.code == 78
    assert "XDG_STATE_HOME" in outcome.err


def test_a_stale_socket_is_no_error(tfctl, spawns, socket_path):
    import socket

    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(socket_path))
    assert tfctl("status").code == 3
    spawns("socket.unlink()\n" + textwrap.dedent(SERVING.format(extra="")))
    assert tfctl("start", "demo-cpu").code == 0


def test_ctrl_c_while_waiting_says_that_the_start_goes_on(home, daemon):
    daemon.state = EngineState.STOPPED
    daemon.operation_steps = [("loading weights", 0.1)] * 1000
    command = [sys.executable, "-m", "tfctl.main", "start", "demo-cpu", "--socket", str(daemon.path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == "loading weights\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    named = f"tfctl --socket {daemon.path}"
    assert f"the start goes on; watch it: {named} status --watch; end it: {named} stop" in err
    assert "Traceback" not in err


def test_stop_waits_for_an_on_demand_daemon_to_be_gone(tfctl, daemon):
    daemon.on_demand = True
    started_s = time.monotonic()
    import threading

    threading.Timer(1.0, daemon.close).start()
    outcome = tfctl("stop")
    assert outcome.code == 0
    assert time.monotonic() - started_s >= 0.9
    assert outcome.out == "the engine has stopped; the daemon has ended\n"
    assert tfctl("stop").out == "nothing is running\n"


def test_a_large_log_of_former_daemons_goes_aside(home):
    log = bringing_up.daemon_log()
    log.parent.mkdir(parents=True)
    for size_bytes, names in ((10, ["daemon.log"]), (9 * 1024 * 1024, ["daemon.log.1"])):
        log.write_bytes(b"x" * size_bytes)
        bringing_up._turn_over(log)
        assert sorted(path.name for path in log.parent.iterdir()) == names
    bringing_up._turn_over(log)  # nothing there is nothing to do
