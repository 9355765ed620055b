"""tfctl as a process: pipes, terminals, interrupts, and what it loads."""

import os
import pty
import signal
import subprocess
import sys

import pytest
from openai_stand_in import StandIn

TFCTL = [sys.executable, "-m", "tfctl.main"]


def at(daemon):
    return ["--socket", str(daemon.path)]


def on_a_terminal(command, extra_env=None):
    """What the command prints to a terminal of 100 columns, stdout and stderr together."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm-256color", **(extra_env or {})}
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    output = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
    os.close(leader)
    return process.wait(), output.decode()


def test_a_reader_that_leaves_early_causes_no_traceback(home, daemon):
    daemon.watch_count = 2000
    command = f"{sys.executable} -m tfctl.main ps --watch=0.1 --socket {daemon.path} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("RID")
    assert done.stderr == ""


@pytest.mark.parametrize("command", [["ps"], ["status"], ["status", "--json"], ["--help"], ["ps", "--nosuch"]])
def test_closed_streams_cause_no_traceback(command, home, daemon):
    line = " ".join([*TFCTL, *command, *at(daemon)])
    for closing in ("1>&-", "2>&-", "1>&- 2>&-", ">/dev/full"):
        done = subprocess.run(["bash", "-c", f"{line} {closing}"], capture_output=True, text=True, timeout=60)
        assert "Traceback" not in done.stdout + done.stderr, closing
        assert "Exception ignored" not in done.stderr, closing


def test_colour_on_a_terminal_only_and_never_with_no_color(home, daemon):
    code, text = on_a_terminal([*TFCTL, "ps", *at(daemon)])
    assert code == 0
    assert "\x1b[" in text
    _, plain = on_a_terminal([*TFCTL, "ps", *at(daemon)], {"NO_COLOR": "1"})
    assert "\x1b[" not in plain
    _, dumb = on_a_terminal([*TFCTL, "ps", *at(daemon)], {"TERM": "dumb"})
    assert "\x1b[" not in dumb


def test_an_ascii_terminal_gets_ascii(home, daemon):
    _, text = on_a_terminal([*TFCTL, "ps", *at(daemon)], {"PYTHONIOENCODING": "ascii", "NO_COLOR": "1"})
    assert text.isascii()


def test_a_bar_shows_the_start_on_a_terminal(home, daemon):
    from tokenflow.wire import EngineState

    daemon.state = EngineState.STOPPED
    code, text = on_a_terminal([*TFCTL, "start", "demo-cpu", *at(daemon)])
    assert code == 0
    assert "loading weights" in text
    assert f"live view: tfctl --socket {daemon.path} top" in text


def test_a_bar_shows_a_benchmark_on_a_terminal(home):
    with StandIn(token_s=0.05) as server:
        options = ["--url", server.url, "-n", "2", "--output-tokens", "fixed:20", "--warmup", "0"]
        code, text = on_a_terminal([*TFCTL, "bench", *options])
    assert code == 0
    assert "seed 1:" in text
    assert "2 streaming" in text
    assert "2 of 2 requests complete" in text


def test_ctrl_c_ends_a_watch_quietly(home, daemon):
    daemon.watch_count = 1_000_000
    command = [*TFCTL, "ps", "--watch=0.1", *at(daemon)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("RID")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err == ""


@pytest.mark.parametrize(
    "command", [["status"], ["ps"], ["mode"], ["stop"], ["tune"], ["transfers"], ["capacity"], ["profile", "list"]]
)
def test_one_shot_commands_stay_light(command, home, daemon):
    heavy = ("rich", "textual", "aiohttp", "asyncio", "numpy", "zmq", "tokenflowd", "tokenflow_tui")
    code = (
        "import sys; from tfctl.main import run\n"
        f"code = run({[*command, *at(daemon)]!r})\n"
        f"print([m for m in {heavy!r} if m in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[] 0"


def test_help_loads_no_command(home):
    code = (
        "import sys; from tfctl.main import run; run(['--help'])\n"
        "print([m for m in sys.modules if m.startswith('tfctl.commands.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
