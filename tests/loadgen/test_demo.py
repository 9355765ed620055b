"""The demo against a scripted server and a stand-in for tfctl: what it calls, prints and exits with."""

import asyncio
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import threading
from fcntl import ioctl

import msgspec
import pytest

from tokenflow.loadgen import demo
from tokenflow.loadgen.operate import Tfctl
from tokenflow.loadgen.plan import StreamPlan
from tokenflow.policy.states import RateSource, RequestState
from tokenflow.wire import (
    Capacity,
    EngineInfo,
    EngineState,
    Latency,
    PolicyInfo,
    Quality,
    RequestRow,
    RequestsDocument,
    StatusDocument,
    Transfers,
)

# Answers as tfctl would, from files; `start` makes the engine serve. Every call is written down.
FAKE_TFCTL = textwrap.dedent("""
    import json, pathlib, sys
    folder, *arguments = sys.argv[1:]
    folder = pathlib.Path(folder)
    with open(folder / "calls", "a") as calls:
        calls.write(json.dumps(arguments) + chr(10))
    if arguments[0] == "--json":
        print((folder / arguments[1]).read_text())
    elif arguments[0] == "top":
        assert sys.stdin.isatty() and sys.stdout.isatty()
        print("the live view", flush=True)
    elif arguments[0] in ("start", "wait"):
        exit_code = int((folder / "start-exit-code").read_text())
        if exit_code == 0:
            (folder / "status").write_text((folder / "status-serving").read_text())
        sys.exit(exit_code)
""")


class Stage:
    """A folder of answers for the stand-in, and what it was called with."""

    def __init__(self, folder, url: str) -> None:
        self.folder = folder
        (folder / "tfctl.py").write_text(FAKE_TFCTL)
        self.tfctl = Tfctl([sys.executable, str(folder / "tfctl.py"), str(folder)])
        self.put("start-exit-code", "0")
        self.put("status-serving", status(EngineState.SERVING, url=url))
        self.put("status", status(EngineState.STOPPED))
        self.put("ps", requests("rid-whole", "rid-cut", "rid-held"))

    def put(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content)

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    async def run(self, *arguments: str) -> int:
        return await asyncio.to_thread(demo.main, list(arguments), self.tfctl)


@pytest.fixture
def stage(tmp_path, server, monkeypatch) -> Stage:
    _, url = server
    monkeypatch.setattr(demo, "plan_streams", lambda workload: [plan(0, "whole"), plan(1, "whole")])
    return Stage(tmp_path, url)


def plan(index: int, prompt: str) -> StreamPlan:
    return StreamPlan(index=index, arrival_s=0.0, prompt=prompt, rate_tok_s=5.0, max_tokens=4)


def status(state: EngineState, url: str | None = None, profile: str = "demo-cpu") -> str:
    engine = EngineInfo(state=state, url=url, model="m", profile=profile, pid=4711)
    document = StatusDocument(
        daemon=None,
        engine=engine,
        policy=PolicyInfo(),
        capacity=Capacity(),
        transfers=Transfers(),
        latency=Latency(),
        quality=Quality(),
    )
    return msgspec.json.encode(document).decode()


def requests(*rids: str) -> str:
    rows = [
        RequestRow(
            rid=rid,
            state=RequestState.FINISHED,
            class_="reading",
            rate_tok_s=5.0,
            rate_source=RateSource.HEADER,
            prompt_tokens=2,
            generated_tokens=4711,
            delivered_tokens=4711,
            consumed_tokens=0.0,
            unread_tokens=0,
            runway_s=0.0,
            stall_count=9,
        )
        for rid in rids
    ]
    return msgspec.json.encode(RequestsDocument(requests=rows, total_count=len(rows))).decode()


async def test_it_starts_the_engine_and_shows_every_stream(stage, capsys):
    assert await stage.run() == 0
    output = capsys.readouterr().out
    assert ["start", "demo-cpu"] in stage.calls()
    assert output.count("rid-whole") == 2
    assert "2 of 2 streams complete, 8 tokens" in output
    assert "4711" in output  # how the daemon saw them
    assert "Still running" in output
    assert "pid 4711" in output
    assert all(command in output for command in (" ps", " top", "stop"))
    assert "\x1b" not in output  # no colours in a log


async def test_an_engine_that_serves_is_taken_as_it_is(stage, server, capsys):
    stage.put("status", status(EngineState.SERVING, url=server[1], profile="other"))
    assert await stage.run() == 0
    assert "under the profile other and not demo-cpu" in capsys.readouterr().out
    assert not any(call[0] == "start" for call in stage.calls())


async def test_an_engine_that_starts_is_waited_for(stage):
    stage.put("status", status(EngineState.STARTING))
    assert await stage.run() == 0
    assert ["wait", "--for", "serving"] in stage.calls()
    assert not any(call[0] == "start" for call in stage.calls())


async def test_an_engine_that_does_not_come_up(stage, server):
    stage.put("start-exit-code", "78")
    assert await stage.run() == 78
    assert server[0].bodies == []


async def test_a_stream_that_breaks_is_told_and_fails_the_demo(stage, capsys, monkeypatch):
    monkeypatch.setattr(demo, "plan_streams", lambda workload: [plan(0, "whole"), plan(1, "cut")])
    assert await stage.run() == 1
    output = capsys.readouterr().out
    assert "1 of 2 streams complete" in output
    assert "stream 1: the connection broke" in output


async def test_it_stops_the_engine_where_asked(stage, capsys):
    assert await stage.run("--stop-after") == 0
    assert stage.calls()[-1] == ["stop"]
    assert "Still running" not in capsys.readouterr().out


async def test_tfctl_without_sense_is_one_error_with_a_hint(stage, capsys):
    stage.put("status", "garbage")
    assert await stage.run() == 1
    output = capsys.readouterr().out
    assert "error: tfctl status gave no document" in output
    assert "hint: " in output


async def test_an_error_of_tfctl_is_passed_on(stage, capsys):
    stage.put("status", '{"error": {"code": "permission_denied", "message": "not yours", "hint": "ask: root"}}')
    assert await stage.run() == 77
    assert capsys.readouterr().out.splitlines() == ["error: not yours", "hint: ask: root"]


@pytest.mark.parametrize(
    "arguments",
    [["--requests", "0"], ["--rates", "0"], ["--rates", "x"], ["--max-tokens", "x"], ["--max-tokens", "9-3"]],
)
def test_unusable_options_end_with_usage_before_anything_starts(arguments, tmp_path, capsys):
    unused = Tfctl([sys.executable, "-c", "raise SystemExit('called')"])
    assert demo.main(arguments, unused) == 2
    output = capsys.readouterr().out
    assert "error: " in output
    assert "hint: " in output


class Terminal:
    """The demo in a process of its own on a terminal, with the stand-in for tfctl."""

    def __init__(self, stage: Stage) -> None:
        code = (
            "import sys; from tokenflow.loadgen import demo; from tokenflow.loadgen.operate import Tfctl; "
            "sys.exit(demo.main(['--requests', '3'], Tfctl(sys.argv[1:])))"
        )
        command = [sys.executable, str(stage.folder / "tfctl.py"), str(stage.folder)]
        self._screen, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        self.process = subprocess.Popen([sys.executable, "-c", code, *command], stdin=theirs, stdout=theirs)
        os.close(theirs)
        self.printed = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while piece := os.read(self._screen, 65_536):
                self.printed += piece.decode()
        except OSError:
            pass  # the end of a terminal

    def end(self) -> int:
        exit_code = self.process.wait(60)
        self._reader.join()
        os.close(self._screen)
        return exit_code


@pytest.fixture
def terminal(stage):
    made = []
    yield lambda: made.append(Terminal(stage)) or made[-1]
    for each in made:
        each.process.kill()
        each.process.wait()


async def test_on_a_terminal_the_view_opens_over_the_burst_and_the_table_follows(stage, terminal):
    shown = terminal()
    assert await asyncio.to_thread(shown.end) == 0
    (view,) = [call for call in stage.calls() if call[0] == "top"]
    assert "q: leave" in view[view.index("--say") + 1]
    assert shown.printed.index("the live view") < shown.printed.index("3 of 3 streams complete")


async def test_ctrl_c_ends_the_streams_and_prints_what_was_measured(stage, terminal, server):
    scripted, _ = server
    scripted.default = "held"
    shown = terminal()
    async with asyncio.timeout(60):
        while len(scripted.bodies) < 3 or "Ctrl-C ends them" not in shown.printed:
            await asyncio.sleep(0.02)
    shown.process.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(shown.end) == 130
    assert shown.printed.count("cancelled") == 3, shown.printed
    assert "0 of 3 streams complete" in shown.printed
    assert "Traceback" not in shown.printed
