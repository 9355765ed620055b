"""`tfctl profile validate`, `create`, `diff` and `apply`."""

import json
import tomllib
from pathlib import Path

import pytest
from document_samples import fixed
from fake_daemon import FakeDaemon

from tokenflow.tuning import Origin

BASE = """# mine, with care
name = "mine"
description = "for me"
[model]
path = "demo" # the small one
served_name = "mine"
[engine]
device = "cpu"
port = 0
[tunables]
quantum_s = 2.0
"""


@pytest.fixture
def folder(home, monkeypatch) -> Path:
    monkeypatch.setattr("os.geteuid", lambda: 1000)  # root writes into /etc where there is one
    path = home / "XDG_CONFIG_HOME" / "tokenflow" / "profiles"
    path.mkdir(parents=True)
    (path / "mine.toml").write_text(BASE)
    return path


def test_every_fault_is_told_with_its_line(tfctl, folder):
    path = folder / "odd.toml"
    path.write_text('name = "odd"\nnonsense = 1\n[model]\npath = "x"\n')
    outcome = tfctl("profile", "validate", "odd", "mine")
    assert outcome.code == 78
    lines = outcome.out.splitlines()
    assert f"{path}:2: nonsense: unknown key" in lines
    assert any(line.startswith(f"{path}:4: model.path: must be") for line in lines)
    assert f"{path}: engine: is missing" in lines
    assert f"{folder / 'mine.toml'}: valid" in lines
    document = json.loads(tfctl("profile", "validate", "odd", "--json").out)
    assert document["schema"] == "tokenflow.profile_check/1"
    assert {fault["line"] for fault in document["profiles"][0]["faults"]} == {2, 3, 4, None}


def test_valid_profiles_are_0_and_a_missing_one_is_78(tfctl, folder):
    assert tfctl("profile", "validate").code == 0
    assert tfctl("profile", "validate", str(folder / "mine.toml")).code == 0
    assert tfctl("profile", "validate", "nosuch").code == 78


def test_a_profile_is_made_from_another_with_its_comments(tfctl, folder, tmp_path):
    outcome = tfctl(
        *("profile", "create", "new", "--from", "mine", "--model", str(tmp_path), "--port", "31000"),
        *("--set", "reserve_s=1.5", "--set", "mode=off"),
    )
    assert outcome.code == 0, outcome.err
    assert "tfctl start new" in outcome.out
    text = (folder / "new.toml").read_text()
    assert "# mine, with care" in text
    contents = tomllib.loads(text)
    assert (contents["name"], contents["description"]) == ("new", "made from mine")
    assert contents["model"] == {"path": str(tmp_path), "served_name": tmp_path.name}
    assert contents["engine"]["port"] == 31000
    assert contents["tunables"] == {"quantum_s": 2.0, "reserve_s": 1.5, "mode": "off"}
    assert tfctl("profile", "validate", "new").code == 0


def test_what_exists_is_replaced_only_by_force(tfctl, folder):
    outcome = tfctl("profile", "create", "mine")
    assert (outcome.code, "--force" in outcome.err) == (1, True)
    assert (folder / "mine.toml").read_text() == BASE
    assert tfctl("profile", "create", "mine", "--force", "-q").out == f"{folder / 'mine.toml'}\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("profile", "create", "../x"), 2),
        (("profile", "create", "x", "--set", "quantum_s=99"), 2),
        (("profile", "create", "x", "--port", "70000"), 2),
        (("profile", "create", "x", "--from", "nosuch"), 78),
    ],
)
def test_bad_wishes(tfctl, folder, arguments, code):
    outcome = tfctl(*arguments)
    assert outcome.code == code, outcome.err
    assert not (folder / "x.toml").exists()


def test_what_would_be_invalid_is_not_written(tfctl, folder):
    (folder / "odd.toml").write_text('name = "odd"\nnonsense = 1\n')
    outcome = tfctl("profile", "create", "copy", "--from", "odd")
    assert outcome.code == 78
    assert "copy.toml:2: nonsense: unknown key" in outcome.err
    assert not (folder / "copy.toml").exists()


def test_a_folder_that_takes_nothing_leads_to_the_state_folder(tfctl, folder, home):
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("")  # no folder can be made there
    outcome = tfctl("profile", "create", "new", "--json")
    assert outcome.code == 0, outcome.err
    document = json.loads(outcome.out)
    assert (document["origin"], Path(document["path"])) == (
        "state",
        home / "XDG_STATE_HOME" / "tokenflow" / "profiles" / "new.toml",
    )
    assert "new" in tfctl("profile", "list", "-q").out.split()


def test_root_writes_where_the_service_looks(tfctl, folder, home, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    (home / "lib").mkdir()
    assert tfctl("profile", "create", "new", "-q").out == f"{home / 'etc' / 'profiles.d' / 'new.toml'}\n"
    (home / "etc" / "profiles.d" / "new.toml").unlink()
    (home / "etc" / "profiles.d").rmdir()
    (home / "etc" / "profiles.d").write_text("")  # as a read-only /etc: nothing can be made there
    assert tfctl("profile", "create", "new", "-q").out == f"{home / 'lib' / 'profiles' / 'new.toml'}\n"
    found = {row["name"]: row["origin"] for row in json.loads(tfctl("profile", "list", "--json").out)["profiles"]}
    assert found["new"] == "state"


def test_a_user_of_the_systems_daemon_is_told_that_it_does_not_look_there(tfctl, folder, home):
    (home / "run").mkdir()
    with FakeDaemon(home / "run" / "control.sock"):
        assert "sudo tfctl profile create" in tfctl("profile", "create", "new").err
    assert tfctl("profile", "create", "other").err == ""


def test_a_difference_says_when_it_applies(tfctl, folder):
    text = BASE.replace('"mine"', '"new"').replace("quantum_s = 2.0", "default_rate_tok_s = 9\nreserve_s = 0.5")
    (folder / "new.toml").write_text(text.replace("port = 0", "port = 0\nargs = ['--tp', '2']"))
    outcome = tfctl("profile", "diff", "mine", "new")
    assert [line.split("  ", 1)[0] + " | " + line.rpartition("(")[2] for line in outcome.out.splitlines()] == [
        "model.served_name | restart)",
        "engine.args | restart)",
        "tunables.default_rate_tok_s | new streams)",
        "tunables.quantum_s | at once)",
    ]
    document = json.loads(tfctl("profile", "diff", "mine", "new", "--json").out)
    assert {change["key"]: (change["old"], change["new"]) for change in document["changes"]} == {
        "model.served_name": ("mine", "new"),
        "engine.args": ([], ["--tp", "2"]),
        "tunables.default_rate_tok_s": (6.0, 9.0),
        "tunables.quantum_s": (2.0, 1.0),
    }
    assert tfctl("profile", "diff", "mine", "mine").out == "mine and mine say the same\n"


def test_with_one_name_the_running_profile_is_the_old_one(tfctl, folder, daemon):
    document = json.loads(tfctl("profile", "diff", "mine", "--json").out)
    assert (document["old"], document["new"]) == ("demo-cpu", "mine")
    assert any(change["key"] == "engine.args" for change in document["changes"])


def test_applying_needs_leave_to_restart(tfctl, folder, daemon):
    outcome = tfctl("profile", "apply", "mine")
    assert outcome.code == 1
    assert "nothing was changed" in outcome.err
    assert "tfctl profile apply mine --restart --drain 60" in outcome.err
    assert [path for method, path, _ in daemon.seen if method != "GET"] == []
    outcome = tfctl("profile", "apply", "mine", "--restart", "--drain", "1")
    assert outcome.code == 0, outcome.err
    (body,) = [json.loads(body) for method, path, body in daemon.seen if path == "/v1/engine/restart"]
    assert (body["profile"], body["drain_s"]) == ("mine", 1.0)


def test_tunables_are_applied_in_the_running_engine(tfctl, folder, daemon, home):
    demo = (Path(__file__).parents[2] / "profiles" / "demo-cpu.toml").read_text()
    changed = demo.replace('name = "demo-cpu"', 'name = "quick"').replace('mode = "enforce"', "quantum_s = 2.0")
    (folder / "quick.toml").write_text(changed)
    outcome = tfctl("profile", "apply", "quick", "--dry-run")
    assert outcome.out == "tunables.quantum_s  1 -> 2  (at once)\n"
    assert [path for method, path, _ in daemon.seen if method == "PATCH"] == []
    assert tfctl("profile", "apply", "quick").code == 0
    (body,) = [json.loads(body) for method, path, body in daemon.seen if method == "PATCH"]
    assert body["changes"] == {"quantum_s": 2.0}


def test_what_stands_above_profiles_is_left_alone():
    from document_samples import tunables_document

    from tfctl.profile.apply import _live_changes
    from tokenflow.policy.tunables import Tunables

    document = fixed(tunables_document(Tunables()))
    for row in document.tunables:
        if row.key == "quantum_s":
            row.origin = Origin.PERSISTED
    changes, skipped = _live_changes(document, {"tunables": {"quantum_s": 3.0, "reserve_s": 2.0}})
    assert [change.key for change in changes] == ["tunables.reserve_s"]
    assert skipped == ["quantum_s"]


def test_without_an_engine_there_is_nothing_to_apply_to(tfctl, folder, daemon_in):
    daemon_in("stopped")
    assert tfctl("profile", "apply", "mine").code == 1
