"""A line of the log names whom it is about: the user, the request, the operation; and nobody that it is not about."""

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

import structlog
from daemon_rig import Rig

from tokenflow import link
from tokenflowd.engine_process import EngineProcess


@contextlib.contextmanager
def captured() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs([structlog.contextvars.merge_contextvars]) as lines:
        yield lines


def of(lines: list[Any], event: str) -> list[Any]:
    return [line for line in lines if line["event"] == event]


async def test_an_operation_s_lines_name_it_and_who_began_it(rig: Rig):
    with captured() as lines:
        operation = await rig.client.start()
    about = [*of(lines, "engine_spawned"), *of(lines, "engine_state"), *of(lines, "audit"), *of(lines, "operation")]
    assert len(about) == 5, [line["event"] for line in lines]
    assert {(line["op"], line["uid"]) for line in about} == {(operation["id"], os.getuid())}


async def test_a_line_about_a_request_names_it(rig: Rig):
    await rig.client.start()
    with captured() as lines:
        await rig.client.ask("POST", "/v1/requests/rid-1/pause")
        await rig.client.ask("PATCH", "/v1/tunables", {"changes": {"quantum_s": 2.0}})
    pause, tune = of(lines, "audit")
    assert (pause["rid"], pause["uid"], "op" in pause) == ("rid-1", os.getuid(), False)
    assert ("rid" in tune, tune["uid"]) == (False, os.getuid()), "the next request on the same connection"
    (tuned,) = of(lines, "tuned")
    assert tuned["uid"] == os.getuid()


async def test_a_fault_of_ours_while_answering_names_the_request(rig: Rig, monkeypatch):
    await rig.client.start()

    async def fail(*_: object) -> link.Reply:
        raise RuntimeError("planted")

    with captured() as lines, monkeypatch.context() as patched:
        patched.setattr(EngineProcess, "command", fail)
        status, _ = await rig.client.ask("GET", "/v1/requests/rid-1/explain")
    (failed,) = of(lines, "request_failed")
    assert (status, failed["rid"], failed["uid"]) == (500, "rid-1", os.getuid())


async def test_a_crash_is_not_the_work_of_who_started_the_engine(rig: Rig):
    await rig.client.start()
    with captured() as lines:
        os.kill(rig.daemon.supervisor.lifecycle.engine.pid, signal.SIGKILL)
        await rig.client.engine_becomes("failed")
    about = [line for line in lines if line["event"] in ("engine_state", "crash_report_kept")]
    assert about
    assert not [line for line in about if "op" in line or "uid" in line]
