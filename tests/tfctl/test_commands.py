"""What single commands do beyond the table in test_matrix."""

import json
import re
import sys
import threading

import jsonschema
import pytest

from tfctl.commands import SUMMARIES
from tfctl.schemas import schema_of
from tokenflow.errors import HostError, PermissionDeniedError
from tokenflow.policy.states import Mode
from tokenflow.version import __version__
from tokenflow.wire import Capacity, EngineState, PluginState


def test_version(tfctl):
    assert tfctl("--version").out == f"tfctl {__version__}\n"
    assert tfctl("status", "--version").code == 0
    assert json.loads(tfctl("--version", "--json").out)["version"] == __version__


def test_status_watch_prints_blocks(tfctl, daemon):
    outcome = tfctl("status", "--watch")
    assert outcome.code == 0
    assert outcome.out.count("● serving") == daemon.watch_count
    assert ("GET", "/v1/status?watch=2.0", b"") in daemon.seen


def test_status_watch_json_is_one_document_a_line(tfctl, daemon):
    lines = tfctl("status", "--watch=0.5", "--json").out.splitlines()
    assert [json.loads(line)["schema"] for line in lines] == ["tokenflow.status/1"] * daemon.watch_count
    assert ("GET", "/v1/status?watch=0.5", b"") in daemon.seen


def test_status_quiet_is_an_exit_code(tfctl, daemon):
    outcome = tfctl("status", "-q")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    daemon.close()
    assert tfctl("status", "-q").code == 3


def test_ps_quiet_prints_ids(tfctl, daemon):
    assert tfctl("ps", "-q").out.splitlines() == [row.rid for row in daemon.rows]
    assert tfctl("ps", "-aq", "--limit", "1").out.splitlines() == [daemon.rows[0].rid]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("runway", "runway_s"),
        ("-age", "-age_s"),
        ("rate", "rate_tok_s"),
        ("class", "class"),
        ("stall_count", "stall_count"),
    ],
)
def test_ps_sort_takes_columns_with_or_without_their_unit(given, sent, tfctl, daemon):
    assert tfctl("ps", "--sort", given).code == 0
    assert daemon.seen[-1][1] == f"/v1/requests?sort={sent}"


def test_ps_asks_for_what_it_was_told(tfctl, daemon):
    tfctl("ps", "--all", "--state", "waiting", "--limit", "7")
    assert daemon.seen[-1][1] == "/v1/requests?state=waiting&limit=7&all=1"


def test_mode_shows_and_sets(tfctl, daemon):
    assert tfctl("mode").out == "observe\n"
    assert tfctl("mode", "off").out == "off\n"
    outcome = tfctl("mode", "enforce")
    assert outcome.code == 1
    assert outcome.err == "error: enforcing does not exist yet\nhint:  tfctl mode observe\n"


def test_logs(tfctl, daemon):
    assert tfctl("logs").out == "line 0\nline 1\nline 2\n"
    assert tfctl("logs", "-n", "1").out == "line 2\n"
    assert json.loads(tfctl("logs", "--json").out)["lines"] == ["line 0", "line 1", "line 2"]
    lines = tfctl("logs", "-f", "--json").out.splitlines()
    assert [json.loads(line)["line"] for line in lines] == ["line 0", "line 1", "line 2"]


def test_logs_without_a_daemon_name_the_last_file(tfctl, home):
    assert "tfctl start" in tfctl("logs").err
    folder = home / "XDG_STATE_HOME" / "tokenflow"
    folder.mkdir()
    (folder / "engine.log").write_text("old\n")
    assert str(folder / "engine.log") in tfctl("logs").err


def test_wait_returns_when_the_state_is_reached(tfctl, daemon):
    daemon.state = EngineState.STARTING
    threading.Timer(0.3, lambda: setattr(daemon, "state", EngineState.SERVING)).start()
    outcome = tfctl("wait", "--for", "serving", "--timeout", "30", "--json")
    assert outcome.code == 0
    document = json.loads(outcome.out)
    assert (document["for"], document["state"]) == ("serving", "serving")
    assert document["waited_s"] > 0


def test_wait_for_serving_fails_at_once_when_the_engine_fails(tfctl, daemon):
    daemon.state = EngineState.STARTING
    threading.Timer(0.3, lambda: setattr(daemon, "state", EngineState.FAILED)).start()
    outcome = tfctl("wait", "--for", "serving")
    assert outcome.code == 1
    assert "killed (signal 9)" in outcome.err


def test_wait_for_stopped_ends_with_the_daemon(tfctl, daemon):
    threading.Timer(0.3, daemon.close).start()
    assert tfctl("wait", "--for", "stopped", "--timeout", "30").code == 0


@pytest.mark.parametrize(("mode", "plugin"), [(Mode.OFF, "active"), (Mode.OBSERVE, "disabled"), (None, "incompatible")])
def test_wait_for_drained_is_refused_where_nobody_counts_requests(tfctl, daemon, mode, plugin):
    answer = daemon.status

    def uncounted():
        document = answer()
        document.policy.mode, document.engine.plugin, document.capacity = mode, PluginState(plugin), Capacity()
        return document

    daemon.status = uncounted
    outcome = tfctl("wait", "--for", "drained", "--timeout", "5")
    assert outcome.code == 1
    assert "nobody counts the requests" in outcome.err
    assert "tfctl stop --drain" in outcome.err


def test_stop_hands_over_the_drain(tfctl, daemon):
    outcome = tfctl("stop", "--drain", "2.5")
    (body,) = [json.loads(body) for method, path, body in daemon.seen if path == "/v1/engine/stop"]
    assert body == {"drain_s": 2.5, "daemon": False}
    assert outcome.out == "the engine has stopped\n"
    assert tfctl("stop").out == "no engine was running\n"


def test_restart_may_name_a_profile_and_engine_arguments(tfctl, daemon):
    outcome = tfctl("restart", "demo-cpu", "--drain", "1", "--", "--port", "1")
    (body,) = [json.loads(body) for method, path, body in daemon.seen if path == "/v1/engine/restart"]
    assert body == {"drain_s": 1.0, "profile": "demo-cpu", "engine_args": ["--port", "1"]}
    assert outcome.out == "serving SmolLM2-135M-Instruct at http://127.0.0.1:30000 (profile demo-cpu)\n"


def write_profile(home, name, text):
    folder = home / "XDG_CONFIG_HOME" / "tokenflow" / "profiles"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.toml").write_text(text)


def test_profiles_are_listed_with_their_origin(tfctl, home):
    model, engine = '[model]\npath = "demo"\nserved_name = "mine"\n', '[engine]\ndevice = "cpu"\n'
    write_profile(home, "mine", 'name = "mine"\ndescription = "for me"\n' + model + engine)
    write_profile(home, "broken", "a = \n")
    lines = tfctl("profile", "list").out.splitlines()
    assert any(line.split() == ["mine", "user", "for", "me"] for line in lines)
    assert any(line.startswith("broken") and "unreadable" in line and "line 1" in line for line in lines)
    found = {profile["name"]: profile for profile in json.loads(tfctl("profile", "list", "--json").out)["profiles"]}
    assert found["mine"]["origin"] == "user"
    assert "line 1" in found["broken"]["error"]


def test_a_profile_that_no_start_would_take_is_marked(tfctl, home):
    write_profile(home, "odd", 'name = "odd"\nnonsense = 1\n[model]\npath = "demo"\n')
    lines = tfctl("profile", "list").out.splitlines()
    (odd,) = [line for line in lines if line.startswith("odd ")]
    assert re.search(r"user +invalid: (line \d+: )?\w.*\(and \d+ more\)$", odd), odd
    (demo,) = [line for line in lines if line.startswith("demo-cpu ")]
    assert "invalid" not in demo
    found = {profile["name"]: profile for profile in json.loads(tfctl("profile", "list", "--json").out)["profiles"]}
    assert "nonsense: unknown key" in found["odd"]["error"]
    assert found["demo-cpu"]["error"] is None
    assert tfctl("profile", "list", "-q").out.splitlines().count("odd") == 1


def test_without_the_daemons_packages_profiles_are_listed_unchecked(tfctl, home, monkeypatch):
    write_profile(home, "odd", "nonsense = 1\n")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    outcome = tfctl("profile", "list")
    assert outcome.code == 0
    assert "odd " in outcome.out
    assert "invalid" not in outcome.out


def test_a_profile_is_shown_as_it_stands(tfctl, home):
    write_profile(home, "mine", '# a comment\ndescription = "for me"\n')
    outcome = tfctl("profile", "show", "mine")
    assert "# a comment" in outcome.out
    document = json.loads(tfctl("profile", "show", "mine", "--json").out)
    assert document["contents"] == {"description": "for me"}


def test_a_broken_or_missing_profile_is_78(tfctl, home):
    write_profile(home, "broken", "a = \n")
    broken = tfctl("profile", "show", "broken")
    assert broken.code == 78
    assert "line 1" in broken.err
    missing = tfctl("profile", "show", "nosuch")
    assert missing.code == 78
    assert "broken" in missing.err


def test_engine_show(tfctl):
    outcome = tfctl("engine", "show")
    assert outcome.code == 0
    assert "python version" in outcome.out
    document = json.loads(tfctl("engine", "show", "--json").out)
    jsonschema.validate(document, schema_of("tokenflow.engine_set/1"))
    assert document["engine_set"]["python_version"]


@pytest.mark.parametrize(("option", "function"), [("--cpu", "install_cpu"), ("--cuda", "install_cuda")])
def test_engine_install_reports_and_shows_what_is_there(option, function, tfctl, monkeypatch):
    from tokenflow.setup import packages

    monkeypatch.setattr(packages, function, lambda report: report("fetching torch"))
    outcome = tfctl("engine", "install", option)
    assert (outcome.code, outcome.err) == (0, "fetching torch\n")
    assert "python version" in outcome.out
    assert tfctl("engine", "install", option, "--json").err == ""


def test_engine_install_wants_one_of_the_two(tfctl):
    assert tfctl("engine", "install", "--cpu", "--cuda").code == 2


def test_a_refused_install_is_78(tfctl, monkeypatch):
    from tokenflow.setup import packages

    def refuse(report):
        raise HostError("pip would take a CUDA build of torch", hint="set PIP_FIND_LINKS")

    monkeypatch.setattr(packages, "install_cpu", refuse)
    assert tfctl("engine", "install", "--cpu").code == 78


def test_an_unexpected_error_is_one_line(tfctl, monkeypatch, daemon):
    import tfctl.commands.ps as ps

    def explode(*arguments):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(ps, "render_requests", explode)
    outcome = tfctl("ps")
    assert outcome.code == 1
    assert outcome.err.splitlines()[0] == "error: unexpected RuntimeError: two lines"
    monkeypatch.setenv("TOKENFLOW_DEBUG", "1")
    with pytest.raises(RuntimeError):
        tfctl("ps")


def test_every_command_has_its_file():
    import importlib

    for name in SUMMARIES:
        assert importlib.import_module(f"tfctl.commands.{name}").app


@pytest.mark.parametrize(
    "command",
    ["tune quantum_s=2", "mode off", "stop", "restart", "pause tf-00000000000000a1", "resume tf-00000000000000a1"],
)
def test_a_viewer_who_acts_is_told_how_to_be_let(command, tfctl, daemon):
    daemon.denial = PermissionDeniedError("it takes the role operator", hint="sudo usermod -aG operators $USER")
    outcome = tfctl(*command.split())
    assert (outcome.code, outcome.out) == (77, "")
    assert outcome.err == "error: it takes the role operator\nhint:  sudo usermod -aG operators $USER\n"
    assert tfctl("status").code == 0, "looking is allowed"


def test_kinds_of_events_are_repeated_or_joined_by_commas(tfctl, daemon):
    joined = tfctl("events", "--kind", "held,fault")
    assert joined.code == 0
    assert joined.out == tfctl("events", "--kind", "held", "--kind", "fault").out
    assert joined.out != tfctl("events").out
    wrong = tfctl("events", "--kind", "held,nosuch")
    assert wrong.code == 2
    assert "there is no kind 'nosuch'" in wrong.err
