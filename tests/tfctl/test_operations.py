"""The bar of a long action, on a terminal."""

import io
import re
import sys

import pytest
import rich.progress

from tfctl.operations import _bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    """Rich's clock, set by the test. The bar's own thread redraws now and then; what it draws is right too."""
    clock = Clock()
    real = rich.progress.Progress
    monkeypatch.setattr(rich.progress, "Progress", lambda *args, **kwargs: real(*args, get_time=clock, **kwargs))
    monkeypatch.setenv("TERM", "xterm")
    return clock


def last_line(terminal: Terminal) -> str:
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    return [line for line in re.split(r"[\r\n]", plain) if line.strip()][-1]


@pytest.mark.parametrize("next_ratio", [None, 0.2])
def test_the_bar_goes_on_after_a_step_that_was_complete(next_ratio, clock, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with _bar() as show:
        show("the demo model is whole", 1.0)
        assert "0:00:00" in last_line(terminal)
        clock.now_s += 7
        show("the demo model is whole", 1.0)
        assert "0:00:07" in last_line(terminal)
        show("loading weights", next_ratio)
        clock.now_s += 5
        show("loading weights", next_ratio)
        line = last_line(terminal)
    assert "loading weights" in line
    assert "0:00:12" in line
    assert re.match(r"[\u2800-\u28ff]", line), "the spinner is gone"
