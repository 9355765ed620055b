"""The live view on a real terminal: it paints soon, and leaves the terminal as it was, however it ends."""

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl

import pytest

LIMIT_S = 60.0
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"  # the alternate screen
MOUSE_OFF, CURSOR_ON = b"\x1b[?1000l", b"\x1b[?25h"


class Terminal:
    """`tfctl top` on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.theirs = theirs
        self.before = termios.tcgetattr(theirs)
        environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tfctl.main", "top", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        self.printed = b""

    def read_until(self, wanted: bytes) -> None:
        end_s = time.monotonic() + LIMIT_S
        while wanted not in self.printed:
            assert time.monotonic() < end_s, self.printed[-2000:]
            self._read()

    def _read(self) -> None:
        if select.select([self.ours], [], [], 0.1)[0]:
            self.printed += os.read(self.ours, 65_536)

    def end(self) -> int:
        """Its exit code, once everything it printed has been read."""
        end_s = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            assert time.monotonic() < end_s
            self._read()
        while select.select([self.ours], [], [], 0.2)[0]:
            self.printed += os.read(self.ours, 65_536)
        return self.process.returncode

    def assert_clean(self) -> None:
        assert termios.tcgetattr(self.theirs) == self.before
        for sign in (LEAVE, MOUSE_OFF, CURSOR_ON):
            assert self.printed.rfind(sign) > self.printed.rfind(ENTER)
        assert b"Traceback" not in self.printed

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def open_top(daemon):
    opened = []

    def start(*arguments: str) -> Terminal:
        opened.append(Terminal("--socket", str(daemon.path), *arguments))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def test_q_leaves_a_clean_terminal(open_top):
    terminal = open_top()
    terminal.read_until(b"RUNWAY")
    os.write(terminal.ours, b"q")
    assert terminal.end() == 0
    terminal.assert_clean()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_a_clean_terminal(open_top, number):
    terminal = open_top()
    terminal.read_until(b"RUNWAY")
    terminal.process.send_signal(number)
    assert terminal.end() == 128 + number
    terminal.assert_clean()


def test_a_lost_daemon_leaves_a_clean_terminal(open_top, daemon):
    terminal = open_top("--readonly", "--ascii", "--theme", "colour-blind")
    terminal.read_until(b"RUNWAY")
    daemon.close()
    terminal.read_until(b"daemon gone")
    os.write(terminal.ours, b"q")
    assert terminal.end() == 0
    terminal.assert_clean()


def test_a_fault_of_the_view_is_one_line_and_a_clean_terminal(open_top, daemon, folder, monkeypatch):
    (folder / "sitecustomize.py").write_text(
        "import tokenflow_tui.scene as scene\n"
        "def fail(self, width, height):\n    raise ValueError('planted')\n"
        "scene.Scene.transfers = fail\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))
    terminal = open_top()
    assert terminal.end() == 1
    assert b"unexpected ValueError: planted" in terminal.printed
    terminal.assert_clean()


def test_an_unknown_theme_is_a_usage_error(open_top):
    terminal = open_top("--theme", "nosuch")
    assert terminal.end() == 2
    assert b"colour-blind" in terminal.printed
    assert ENTER not in terminal.printed
