"""What an operator sees when something is killed, and that one command brings it back."""

import asyncio
import os
import signal
import threading
import time

import psutil

from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.loadgen.run import LoadRun


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
    os.kill(scheduler_pid, signal.SIGSTOP)
    document = status_within(own_engine, 5.0, "wedged")
    assert f"kill -CONT {scheduler_pid}" in document["alarms"][0]["message"]
    assert own_engine.tfctl("status").returncode == 4
    os.kill(scheduler_pid, signal.SIGCONT)
    status_within(own_engine, 5.0, "serving")
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


def test_a_stream_goes_on_through_the_death_of_the_daemon_and_the_next_takes_the_engine_over(own_engine):
    own_engine.start()
    document = own_engine.status()
    engine_pid = document["engine"]["pid"]
    plan = StreamPlan(index=0, arrival_s=0.0, prompt="Count to a thousand.", rate_tok_s=50.0, max_tokens=250)
    endpoint = Endpoint(url=own_engine.url, model=own_engine.model, extra_body={"ignore_eos": True})
    run = LoadRun(endpoint, [plan])
    thread = threading.Thread(target=lambda: asyncio.run(run.execute()))
    thread.start()
    try:
        while run.recorders[0].token_count == 0 and thread.is_alive():
            thread.join(0.05)
        assert own_engine.tfctl("tune", "safety_factor=2.5").returncode == 0
        os.kill(document["daemon"]["pid"], signal.SIGKILL)
        psutil.Process(document["daemon"]["pid"]).wait(10.0)
        without_daemon = own_engine.tfctl("status")
        assert without_daemon.returncode == 3
        assert f"runs on without it, pid {engine_pid}: tfctl start" in without_daemon.stdout
        told = own_engine.status()
        assert (told["daemon"], told["engine"]["pid"], told["engine"]["state"]) == (None, engine_pid, "serving")

        again = own_engine.tfctl("start")
        assert again.returncode == 0, again.stderr
        assert "already serving" in again.stdout
        engine = own_engine.status()["engine"]
        assert (engine["state"], engine["pid"], engine["adopted"]) == ("serving", engine_pid, True)
        [row] = [row for row in own_engine.json("tune")["tunables"] if row["key"] == "safety_factor"]
        assert (row["value"], row["origin"]) == (2.5, "tuned")
        rid = run.recorders[0].rid
        generated = own_engine.row_when(rid, lambda row: row["state"] == "running")["generated_tokens"]
        own_engine.row_when(rid, lambda row: row["generated_tokens"] > generated)  # telemetry goes on
        assert own_engine.tfctl("mode", "observe").returncode == 0  # and so do commands
    finally:
        thread.join(240)
    [stream] = run.result().streams
    assert (stream.error, stream.is_complete, stream.token_count) == (None, True, 250)
    own_engine.stop()
    own_engine.assert_nothing_left()


def test_the_engine_of_a_killed_daemon_can_be_stopped_without_one(own_engine):
    own_engine.start()
    document = own_engine.status()
    os.kill(document["daemon"]["pid"], signal.SIGKILL)
    psutil.Process(document["daemon"]["pid"]).wait(10.0)
    stopped = own_engine.tfctl("stop")
    assert stopped.returncode == 0
    assert f"(pid {document['engine']['pid']}, profile {document['engine']['profile']})" in stopped.stdout
    own_engine.assert_nothing_left()
    second = own_engine.tfctl("stop")
    assert second.returncode == 0
    assert "nothing" in (second.stdout + second.stderr).lower()
    assert "Traceback" not in second.stderr
