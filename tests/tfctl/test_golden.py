"""What people and scripts see, word for word. To accept a change: GOLDEN_UPDATE=1 pytest tests/tfctl/test_golden.py"""

import json
import os
import re
import time
from pathlib import Path

import pytest

from tfctl.commands import SUMMARIES

FOLDER = Path(__file__).parent / "golden"
PROFILE = ("list", "show", "validate", "create", "diff", "apply", "measure")
GROUPED = (
    "engine install",
    "engine show",
    *(f"profile {command}" for command in PROFILE),
    *(f"service {command}" for command in ("install", "uninstall", "show")),
)


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


@pytest.mark.parametrize("width", ["80", "140"])
def test_tune(width, tfctl, daemon, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    check("tune.txt", tfctl("tune").out)


def test_what_was_tuned_is_read_back(tfctl, daemon):
    assert tfctl("tune", "quantum_s=2", "write_through=off").out == "quantum_s = 2\nwrite_through = false\nrevision 1\n"
    text = tfctl("tune", "--dry-run", "quantum_s=2").out
    assert text == "quantum_s = 2\nnothing was changed: a dry run\n"


def test_pause_and_resume(tfctl, daemon):
    assert tfctl("pause", "tf-00000000000000a1").out == "tf-00000000000000a1: held (it was running)\n"
    assert tfctl("resume", "tf-00000000000000a1").out == "tf-00000000000000a1: let go\n"
    assert tfctl("pause", "tf-00000000000000a1", "-q").out == ""


@pytest.mark.parametrize("width", ["80", "140"])
def test_transfers_and_capacity(width, tfctl, daemon, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    check("transfers.txt", tfctl("transfers").out)
    check("capacity.txt", tfctl("capacity").out)


def test_transfers_and_capacity_json(tfctl, daemon, home):
    check("transfers.json", steady(tfctl("transfers", "--json").out, home))
    check("capacity.json", steady(tfctl("capacity", "--json").out, home))


def test_a_watched_part_of_the_status_is_a_line_each(tfctl, daemon):
    for command in ("transfers", "capacity"):
        lines = [json.loads(line) for line in tfctl(command, "--watch=0.1", "--json").out.splitlines()]
        assert [line["schema"] for line in lines] == [f"tokenflow.{command}/1"] * daemon.watch_count


def test_an_engine_that_is_not_up_is_said_first(tfctl, daemon_in):
    daemon_in("stopped")
    assert tfctl("capacity").out.startswith("the engine is stopped: tfctl status\n")


def test_explain_a_live_request(tfctl, daemon):
    check("explain-live.txt", tfctl("explain", "tf-00000000000000a1").out)


def test_abort(tfctl, daemon):
    assert tfctl("abort", "tf-00000000000000a1").out == "tf-00000000000000a1: aborted (it was running)\n"
    assert tfctl("abort", "tf-00000000000000a1", "-q").out == ""


def test_events(tfctl, daemon, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    text = tfctl("events").out
    monkeypatch.undo()
    time.tzset()
    check("events.txt", text)


def test_events_json_is_one_document_and_a_line_each_when_followed(tfctl, daemon, home):
    document = json.loads(tfctl("events", "--json").out)
    assert [event["kind"] for event in document["events"]][:2] == ["engine_started", "held"]
    lines = [json.loads(line) for line in tfctl("events", "-f", "--json").out.splitlines()]
    assert [line["event"] for line in lines] == document["events"]
    assert {line["schema"] for line in lines} == {"tokenflow.event/1"}


def steady(text: str, home: Path) -> str:
    """Without what differs from run to run: the folder of this test and the time."""
    text = text.replace(str(home), "/HOME")
    return re.sub(r'"generated_at":"[^"]+"', '"generated_at":"TIME"', text)
