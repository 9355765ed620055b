"""No daemon, but an engine that one has left behind: what `stop` and `status` do. The daemon's program is a script."""

import json
import sys

import pytest

from tfctl import leftover
from tfctl.schemas import schema_of
from tokenflow import locations

FOUND = 'print(\'{"pid":4711,"profile":"demo-cpu","state":"serving"}\')'
REFUSED = "import sys; print('tokenflowd: processes cannot be ended: 4711 (ps -fp 4711)', file=sys.stderr); sys.exit(1)"


@pytest.fixture
def answering(home, monkeypatch):
    """Lays a record down and lets a line of Python answer for the daemon's program. Returns the questions."""
    asked = []

    def use(code: str) -> list[tuple[str, str]]:
        def command(action, socket):
            asked.append((action, str(socket)))
            return [sys.executable, "-c", code]

        monkeypatch.setattr(leftover, "leftover_command", command)
        return asked

    path = locations.engine_record(locations.user_socket())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return use


def test_stop_ends_it_and_says_so(tfctl, answering, socket_path):
    asked = answering(FOUND)
    outcome = tfctl("stop")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "the engine of a daemon that has ended (pid 4711, profile demo-cpu) has been ended\n"
    assert json.loads(tfctl("stop", "--json").out)["result"] == {"already": False, "leftover_pid": 4711}
    assert tfctl("stop", "-q").out == ""
    assert asked == [("end", str(socket_path))] * 3


def test_status_names_it(tfctl, answering):
    asked = answering(FOUND)
    outcome = tfctl("status")
    assert outcome.code == 3
    assert "its engine runs on without it, pid 4711: tfctl start watches it again, tfctl stop ends it" in outcome.out
    outcome = tfctl("status", "--json")
    document = json.loads(outcome.out)
    assert outcome.code == 3
    assert document["daemon"] is None
    assert (document["engine"]["pid"], document["engine"]["state"]) == (4711, "serving")
    assert "runs on" in document["engine"]["reason"]
    assert {action for action, _ in asked} == {"show"}


def test_what_cannot_be_ended_is_an_error(tfctl, answering):
    answering(REFUSED)
    outcome = tfctl("stop")
    assert outcome.code == 1
    assert outcome.err == "error: processes cannot be ended: 4711\nhint:  ps -fp 4711\n"
    assert "tokenflowd is not running" in tfctl("status").out


@pytest.mark.parametrize("code", ["print('null')", "print('what')"])
def test_a_record_of_nothing(tfctl, answering, code):
    answering(code)
    assert tfctl("status").out.splitlines()[0].endswith("tokenflowd is not running")
    outcome = tfctl("stop")
    assert (outcome.code, outcome.out) == ((0, "nothing is running\n") if "null" in code else (1, ""))


def test_the_documents_fit_their_schemas(tfctl, answering):
    jsonschema = pytest.importorskip("jsonschema")
    answering(FOUND)
    for command in ("status", "stop"):
        document = json.loads(tfctl(command, "--json").out)
        jsonschema.validate(document, schema_of(document["schema"]))


def test_another_socket_has_a_record_of_its_own(tfctl, answering, home):
    asked = answering(FOUND)
    assert tfctl("stop", "--socket", str(home / "b.sock")).out == "nothing is running\n"
    assert asked == []
