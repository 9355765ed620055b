"""`tfctl bugreport`: what is in it, and above all what is not."""

import json
import tarfile
from pathlib import Path

import pytest

from tfctl.bugreport import redact
from tokenflow import locations

SECRETS = ("sk-verysecretverysecret", "hunter2", "what the user asked", "what the model said", "wxyz-0123")
ENGINE_LOG = """\
[2026-11-29 17:22:02] Load weight begin. avail mem=21.82 GB
[2026-11-29 17:22:03] Receive: obj=GenerateReqInput(text='what the user asked', stream=True)
[2026-11-29 17:22:04] Decode batch, #running-req: 3, #token: 789, token usage: 0.19, gen throughput (token/s): 15.8
Finish: obj=..., out={'text': 'what the model said'}
Traceback (most recent call last):
  File "/home/me/venv/lib/sglang/scheduler.py", line 12, in run_batch
    raise ValueError(f"cannot parse {prompt}")
ValueError: cannot parse what the user asked
"""


@pytest.fixture
def traces(home, monkeypatch):
    """What a host of long service has lying around, secrets included."""
    state = locations.user_state_folder()
    for folder in (state / "engine-flight", state / "engine-crashes", locations.user_config_folder()):
        folder.mkdir(parents=True)
    (state / "engine.log").write_text(ENGINE_LOG)
    (state / "daemon.log").write_text('{"event": "daemon_serves", "api_key": "hunter2"}\n')
    (state / "engine-flight" / "flight.jsonl").write_text('{"schema": "tokenflow.flight/1"}\n')
    (state / "engine-crashes" / "crash-1.json").write_text('{"schema": "tokenflow.crash/1"}')
    (locations.user_config_folder() / "tokenflow.toml").write_text(
        'api_key = "wxyz-0123"\nengine_command = ["python", "--api-key", "sk-verysecretverysecret"]\ndrain_s = 3\n'
    )
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    return home


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            member.name.partition("/")[2]: archive.extractfile(member).read().decode()
            for member in archive.getmembers()
        }


def test_a_report_with_a_daemon(tfctl, daemon, traces, tmp_path):
    path = tmp_path / "report.tar.gz"
    outcome = tfctl("bugreport", "--output", str(path), "--json", "--duration", "0.5")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    found = contents(path)
    assert (document["path"], sorted(document["files"])) == (str(path), sorted(found))
    assert path.stat().st_mode & 0o777 == 0o600
    wanted = {
        "about.json", "doctor.json", "status.json", "requests.json", "tunables.json", "events.jsonl", "metrics.txt",
        "profile.toml", "watch.jsonl", "settings/tokenflow-tokenflow.toml", "logs/engine.log", "logs/daemon.log",
        "flight/flight.jsonl", "crashes/crash-1.json",
    }  # fmt: skip
    assert {name.removesuffix(".missing.txt") for name in found} == wanted
    assert json.loads(found["status.json"])["schema"] == "tokenflow.status/1"
    assert {check["name"] for check in json.loads(found["doctor.json"])["checks"]} >= {"memory", "daemon"}
    assert "Decode batch" in found["logs/engine.log"]
    assert "scheduler.py:12 in run_batch" in found["logs/engine.log"]
    assert "ValueError: [redacted]" in found["logs/engine.log"]
    assert "drain_s = 3" in found["settings/tokenflow-tokenflow.toml"]
    assert json.loads(found["about.json"])["environment"]["HF_TOKEN"] == "[redacted]"
    everything = "\n".join(found.values())
    assert [secret for secret in SECRETS if secret in everything] == []


def test_a_report_without_a_daemon(tfctl, traces, tmp_path):
    path = tmp_path / "report.tar.gz"
    outcome = tfctl("bugreport", "-o", str(path))
    assert outcome.code == 0
    assert outcome.out.startswith(f"{path} (")
    found = contents(path)
    assert found["daemon.txt"] == "no daemon answers\n"
    assert {"doctor.json", "logs/engine.log", "flight/flight.jsonl", "crashes/crash-1.json"} <= found.keys()
    again = tfctl("bugreport", "-o", str(path))
    assert (again.code, "File exists" in again.err) == (1, True)
    assert contents(path).keys() == found.keys()  # what was there is left alone


def test_what_cannot_be_read_is_told(tfctl, traces, tmp_path, monkeypatch):
    """As for somebody who is not root, where the service keeps its folders closed."""
    listed = Path.iterdir

    def closed(folder):
        if folder.name == "engine-flight":
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", closed)
    path = tmp_path / "report.tar.gz"
    assert tfctl("bugreport", "-o", str(path)).code == 0
    found = contents(path)
    assert "PermissionError" in found["flight.missing.txt"]
    assert "crashes/crash-1.json" in found


def test_a_place_that_cannot_be_written(tfctl, home):
    outcome = tfctl("bugreport", "-o", "/nowhere/report.tar.gz")
    assert outcome.code == 1
    assert "tfctl bugreport --output FILE" in outcome.err


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('api_key = "abc"', 'api_key = "[redacted]"'),
        ("{'admin_api_key': 'abc', 'port': 1}", "{'admin_api_key': '[redacted]', 'port': 1}"),
        ('"--api-key", "abc", "--tp", "2"', '"--api-key", "[redacted]", "--tp", "2"'),
        ("--api-key=abc --port 1", "--api-key=[redacted] --port 1"),
        ("Authorization: Bearer abcdef", "Authorization: [redacted] [redacted]"),
        ("https://me:pw@host/x", "https://[redacted]@host/x"),
        ("HF_TOKEN=abc", "HF_TOKEN=[redacted]"),
        ("the key is hf_abcdefghijklmnopqrst", "the key is [redacted]"),
        ("--max-total-tokens 4096", "--max-total-tokens 4096"),
        ('"tokenizer_path": "/m", "delivered_tokens": 12', '"tokenizer_path": "/m", "delivered_tokens": 12'),
        ('"api_key": null', '"api_key": null'),
        ("tokenflow: hooks in place", "tokenflow: hooks in place"),
    ],
)
def test_what_is_taken_out_and_what_is_not(before, after):
    assert redact.text(before) == after


def test_the_home_folder_is_not_named():
    assert redact.text("/home/alice/models/x", Path("/home/alice")) == "~/models/x"
