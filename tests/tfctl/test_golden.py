"""What people and scripts see, word for word. To accept a change: GOLDEN_UPDATE=1 pytest tests/tfctl/test_golden.py"""

import os
import re
from pathlib import Path

import pytest

from tfctl.commands import SUMMARIES

FOLDER = Path(__file__).parent / "golden"
GROUPED = ("engine install", "engine show", "profile list", "profile show")


def check(name: str, text: str) -> None:
    path = FOLDER / name
    if os.environ.get("GOLDEN_UPDATE"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{name}: to accept, run again with GOLDEN_UPDATE=1"


@pytest.mark.parametrize("command", ["", *SUMMARIES, *GROUPED])
def test_help(command, tfctl, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    outcome = tfctl(*command.split(), "--help")
    assert outcome.code == 0
    assert outcome.err == ""
    assert tfctl(*command.split(), "-h").out == outcome.out
    assert all(len(line) <= 90 for line in outcome.out.splitlines())
    check(f"help-{command.replace(' ', '-') or 'tfctl'}.txt", outcome.out)


@pytest.mark.parametrize(("name", "summary"), SUMMARIES.items())
def test_a_summary_is_the_first_line_of_the_help(name, summary, tfctl):
    lines = [line.strip() for line in tfctl(name, "--help").out.splitlines() if line.strip()]
    assert lines[1] == summary


@pytest.mark.parametrize(
    "state", ["none", "stopped", "starting", "serving", "busy", "draining", "failed", "wedged", "garbage"]
)
@pytest.mark.parametrize("form", ["txt", "json"])
def test_status(state, form, tfctl, daemon_in, home):
    if state != "none":
        daemon_in(state)
    outcome = tfctl("status", *(["--json"] if form == "json" else []))
    check(f"status-{state}.{form}", steady(outcome.out + outcome.err, home))


@pytest.mark.parametrize("width", ["60", "80", "140"])
def test_ps(width, tfctl, daemon, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    text = tfctl("ps").out
    assert all(len(line) <= int(width) for line in text.splitlines())
    check(f"ps-{width}.txt", text)


def test_ps_json(tfctl, daemon):
    check("ps.json", tfctl("ps", "--json").out)


def test_ps_without_requests(tfctl, daemon):
    daemon.rows = []
    assert tfctl("ps").out == "no requests\n"


def test_ps_tells_what_the_limit_hides(tfctl, daemon):
    assert tfctl("ps", "--limit", "1").out.splitlines()[-1] == "and 3 more"


def test_top_once(tfctl, daemon):
    check("top-once.txt", tfctl("top", "--once").out)
    text = tfctl("top", "--once", "--ascii").out
    assert text.isascii()
    check("top-once-ascii.txt", text)


def steady(text: str, home: Path) -> str:
    """Without what differs from run to run: the folder of this test and the time."""
    text = text.replace(str(home), "/HOME")
    return re.sub(r'"generated_at":"[^"]+"', '"generated_at":"TIME"', text)
