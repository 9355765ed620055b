"""What an operator sees when something is killed, and that one command brings it back."""

import os
import signal
import time

import psutil


def pid_of(rig, title: str) -> int:
    """The pid of one of SGLang's processes, which name themselves."""
    for process in rig.processes():
        if title in " ".join(process.cmdline()):
            return process.pid
    raise AssertionError(f"no process called {title}: {[p.cmdline() for p in rig.processes()]}")


def status_within(rig, limit_s: float, state: str):
    deadline_s = time.monotonic() + limit_s
    while True:
        began_s = time.monotonic()
        document = rig.status()
        if document["engine"]["state"] == state:
            return document
        assert began_s < deadline_s, f"not {state} within {limit_s} s but {document['engine']}"
        time.sleep(0.1)


def test_a_killed_scheduler_is_told_within_five_seconds_and_start_recovers(own_engine):
    own_engine.start()
    first_pid = own_engine.status()["engine"]["pid"]
    scheduler_pid = pid_of(own_engine, "sglang::scheduler")
    os.kill(scheduler_pid, signal.SIGKILL)

    document = status_within(own_engine, 5.0, "failed")
    assert str(scheduler_pid) in document["engine"]["reason"]
    assert "scheduler" in document["engine"]["reason"]
    assert own_engine.tfctl("status").returncode == 3
    assert own_engine.tfctl("wait", "--for", "serving", "--timeout", "60").returncode == 1

    own_engine.start()
    engine = own_engine.status()["engine"]
    assert engine["state"] == "serving"
    assert engine["pid"] != first_pid

    detokenizer_pid = pid_of(own_engine, "sglang::detokenizer")
    os.kill(detokenizer_pid, signal.SIGKILL)
    document = status_within(own_engine, 5.0, "failed")
    assert f"detokenizer process {detokenizer_pid}" in document["engine"]["reason"]
    own_engine.stop()
    own_engine.assert_nothing_left()


def test_after_a_killed_daemon_start_recovers_and_the_old_engine_is_gone(own_engine):
    own_engine.start()
    document = own_engine.status()
    old_engine = psutil.Process(document["engine"]["pid"])
    os.kill(document["daemon"]["pid"], signal.SIGKILL)

    stopped = own_engine.tfctl("status")
    assert stopped.returncode == 3
    assert "Traceback" not in stopped.stderr

    own_engine.start()
    assert not old_engine.is_running()
    document = own_engine.status()
    assert document["engine"]["state"] == "serving"

    os.kill(document["daemon"]["pid"], signal.SIGKILL)
    psutil.Process(document["daemon"]["pid"]).wait(10.0)
    without_daemon = own_engine.tfctl("status")
    assert without_daemon.returncode == 3
    assert f"is still running, pid {document['engine']['pid']}: tfctl stop ends it" in without_daemon.stdout
    told = own_engine.status()
    assert (told["daemon"], told["engine"]["pid"]) == (None, document["engine"]["pid"])
    stopped = own_engine.tfctl("stop")
    assert stopped.returncode == 0
    assert f"(pid {document['engine']['pid']}, profile {document['engine']['profile']})" in stopped.stdout
    own_engine.assert_nothing_left()
    second = own_engine.tfctl("stop")
    assert second.returncode == 0
    assert "nothing" in (second.stdout + second.stderr).lower()
    assert "Traceback" not in second.stderr
