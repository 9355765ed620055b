"""Every command in every state of the daemon: the exit code, JSON that its schema accepts, and never a traceback."""

import json
from pathlib import Path

import jsonschema
import pytest

from tfctl.commands import SUMMARIES
from tfctl.schemas import schema_of

STATES = (
    "none",
    "stopped",
    "starting",
    "serving",
    "busy",
    "draining",
    "failed",
    "wedged",
    "garbage",
    "nonsense",
)

NEEDS_ENGINE = {"none": 69, "garbage": 69, "nonsense": 69, "stopped": 1, "starting": 1, "failed": 1, "*": 0}

# command line → exit code by state; "*" is every state that is not named
COMMANDS: dict[tuple[str, ...], dict[str, int]] = {
    ("status",): {"serving": 0, "busy": 0, "wedged": 4, "garbage": 4, "nonsense": 4, "*": 3},
    ("ps",): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("ps", "-a", "--state", "running", "--sort", "age", "--limit", "1"): {
        "none": 69,
        "garbage": 69,
        "nonsense": 69,
        "*": 0,
    },
    ("stop",): {"garbage": 69, "nonsense": 69, "*": 0},
    ("stop", "--drain", "1"): {"garbage": 69, "nonsense": 69, "*": 0},
    ("restart",): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("mode",): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("mode", "observe"): {
        "none": 69,
        "garbage": 69,
        "nonsense": 69,
        "stopped": 1,
        "starting": 1,
        "failed": 1,
        "*": 0,
    },
    ("mode", "enforce"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 1},
    ("tune",): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("tune", "quantum_s=2", "variant=paper"): NEEDS_ENGINE,
    ("tune", "quantum_s=2", "--dry-run"): NEEDS_ENGINE,
    ("tune", "quantum_s=99", "nosuch=1"): {**NEEDS_ENGINE, "*": 2},
    ("tune", "quantum_s=2", "--if-revision", "7"): {**NEEDS_ENGINE, "*": 1},
    ("tune", "quantum_s=2", "--persist"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("tune", "--reset"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("mode", "off", "--direct"): {"*": 1},
    ("pause", "tf-00000000000000a1"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("resume", "tf-00000000000000a1"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("pause", "tf-0"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 1},
    ("resume", "../status"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 1},
    ("tune", "safety_factor=3", "--compare", "--over", "0.1"): NEEDS_ENGINE,
    ("tune", "safety_factor=99", "nosuch=1", "--compare", "--over", "0.1"): {**NEEDS_ENGINE, "*": 2},
    ("tune", "safety_factor=3", "--compare", "--from", "/nosuch"): {"*": 78},
    ("abort", "tf-00000000000000a1"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("abort", "tf-0"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 1},
    ("explain", "tf-00000000000000a1"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("explain", "tf-0"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 1},
    ("explain", "--buffer", "10", "--rate", "20", "--load-ms", "220"): {"*": 0},
    ("explain",): {"*": 2},
    ("transfers",): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("capacity",): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("engine", "show"): {"*": 0},
    ("metrics",): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("metrics", "write"): {"*": 2},
    ("metrics", "write", "/nosuch/folder/x.prom"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 1},
    ("events",): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("events", "--kind", "held", "--kind", "fault", "-n", "1"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("logs",): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("wait", "--for", "serving", "--timeout", "0.1"): {
        "none": 69,
        "garbage": 69,
        "nonsense": 69,
        "failed": 1,
        "serving": 0,
        "busy": 0,
        "*": 75,
    },
    ("wait", "--for", "stopped", "--timeout", "0.1"): {
        "none": 0,
        "stopped": 0,
        "failed": 0,
        "garbage": 69,
        "nonsense": 69,
        "*": 75,
    },
    ("wait", "--for", "drained", "--timeout", "0.1"): {
        "none": 0,
        "stopped": 0,
        "failed": 1,
        "garbage": 69,
        "nonsense": 69,
        "*": 75,
    },
    ("start", "demo-cpu", "--no-wait"): {"garbage": 69, "nonsense": 69, "*": 0},
    ("start", "nosuch"): {"garbage": 69, "nonsense": 69, "*": 78},
    ("top", "--once"): {"none": 69, "garbage": 69, "nonsense": 69, "*": 0},
    ("top",): {"*": 2},  # no terminal here
    ("bench", "--rates", "0"): {"*": 2},
    ("bench", "--url", "nowhere"): {"*": 2},
    ("profile", "list"): {"*": 0},
    ("profile", "show", "nosuch"): {"*": 78},
    ("profile", "validate", "nosuch"): {"*": 78},
    ("profile", "apply", "demo-cpu", "--dry-run"): {
        "none": 69,
        "garbage": 69,
        "nonsense": 69,
        "stopped": 1,
        "*": 0,
    },
    ("engine", "install"): {"*": 2},
}
ELSEWHERE = {"bench", "simulate", "doctor", "bugreport", "service"}
CASES = [
    pytest.param(command, state, codes.get(state, codes["*"]), id=f"{'_'.join(command)}-{state}")
    for command, codes in COMMANDS.items()
    for state in STATES
    # Without a daemon `start` brings a real one up: tests of its own.
    if not (command[0] == "start" and state == "none")
]


def test_no_command_is_left_out():
    """Those elsewhere have tests of their own, in files of their names."""
    assert {command[0] for command in COMMANDS} >= set(SUMMARIES) - ELSEWHERE
    for name in ELSEWHERE:
        assert list(Path(__file__).parent.glob(f"test_{name}*.py")), name


@pytest.mark.parametrize(("command", "state", "expected"), CASES)
def test_exit_code_and_output(command, state, expected, tfctl, daemon_in):
    if state != "none":
        daemon_in(state)
    human = tfctl(*command)
    assert human.code == expected, human
    assert "Traceback" not in human.out + human.err
    if expected not in (0, 3, 4):
        assert human.out == ""
        assert human.err.startswith("error: ")
        assert "\nhint:  " in human.err
    assert "\x1b" not in human.out + human.err


@pytest.mark.parametrize(("command", "state", "expected"), CASES)
def test_json_is_one_document_of_its_schema(command, state, expected, tfctl, daemon_in):
    if state != "none":
        daemon_in(state)
    outcome = tfctl(*command, "--json")
    assert outcome.code == expected, outcome
    assert outcome.err == ""
    (line,) = outcome.out.splitlines()
    document = json.loads(line)
    jsonschema.validate(document, schema_of(document["schema"]))
    is_error = expected not in (0, 3) and not (command == ("status",) and state == "wedged")
    assert (document["schema"] == "tokenflow.error/1") == is_error
    if is_error:
        assert document["error"]["message"]
        assert document["error"]["hint"]


@pytest.mark.parametrize("arguments", [("status", "--json"), ("--json", "status"), ("--json", "status", "--json")])
def test_global_options_stand_before_or_after(arguments, tfctl, daemon):
    outcome = tfctl(*arguments)
    assert json.loads(outcome.out)["engine"]["state"] == "serving"


def test_socket_option_before_and_after(home, tfctl, daemon_in, socket_path):
    fake = daemon_in("serving")
    elsewhere = home / "other.sock"
    assert tfctl("--socket", str(elsewhere), "ps").code == 69
    assert tfctl("ps", f"--socket={elsewhere}").code == 69
    assert tfctl("ps", "--socket", str(fake.path)).code == 0


USAGE_ERRORS = [
    ("bogus",),
    ("stat",),
    ("status", "--nosuch"),
    ("status", "extra"),
    ("ps", "--state", "sleeping"),
    ("ps", "--sort"),
    ("ps", "--limit", "0"),
    ("ps", "--limit", "many"),
    ("ps", "--watch=soon"),
    ("mode", "loud"),
    ("tune", "quantum_s"),
    ("tune", "=2"),
    ("tune", "quantum_s=2", "quantum_s=3"),
    ("tune", "--dry-run"),
    ("tune", "--persist"),
    ("tune", "--if-revision", "1"),
    ("tune", "quantum_s=2", "--if-revision", "-1"),
    ("pause",),
    ("pause", " "),
    ("resume", "a", "b"),
    ("abort",),
    ("abort", " "),
    ("tune", "--compare"),
    ("tune", "safety_factor=3", "--from", "FILE"),
    ("tune", "safety_factor=3", "--compare", "--over", "-1"),
    ("explain", "tf-1", "--rate", "4"),
    ("transfers", "--watch=0"),
    ("capacity", "extra"),
    ("events", "--kind", "nosuch"),
    ("events", "-n", "-1"),
    ("wait",),
    ("wait", "--for", "godot"),
    ("stop", "--drain", "-1"),
    ("--timeout", "x", "status"),
    ("--timeout", "nan", "status"),
    ("stop", "--drain", "nan"),
    ("ps", "--watch=inf"),
    ("bench", "--seed", "x"),
    ("bench", "--warmup", "-1"),
    ("engine", "bogus"),
    ("profile",),
    ("--json",),
]


@pytest.mark.parametrize("arguments", USAGE_ERRORS, ids=" ".join)
def test_usage_errors_under_json(arguments, tfctl):
    outcome = tfctl(*arguments, "--json") if arguments != ("--json",) else tfctl(*arguments)
    assert outcome.code == 2
    document = json.loads(outcome.out)
    jsonschema.validate(document, schema_of("tokenflow.error/1"))
    assert document["error"]["code"] == "usage"
    assert document["error"]["hint"].startswith("tfctl")
    assert outcome.err == ""


@pytest.mark.parametrize("arguments", [(), ("engine",), ("profile",)])
def test_no_command_is_help_and_a_usage_error(arguments, tfctl):
    outcome = tfctl(*arguments)
    assert outcome.code == 2
    assert "Usage: tfctl" in outcome.err
    assert "Commands:" in outcome.err
