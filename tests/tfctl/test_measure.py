"""`tfctl profile measure` up to the point where an engine is needed."""

import pytest

from tfctl.profile.client_key import client_key
from tokenflow.errors import ConfigurationError, PermissionDeniedError, UsageError
from tokenflow.wire import EngineState


def test_another_profile_than_the_one_that_runs_is_refused(tfctl, daemon):
    outcome = tfctl("profile", "measure", "--profile", "h200-llama3-8b")
    assert outcome.code == 1
    assert "demo-cpu" in outcome.err
    assert "tfctl stop --drain 60" in outcome.err


def test_a_running_engine_cannot_be_given_arguments(tfctl, daemon):
    outcome = tfctl("profile", "measure", "--profile", "demo-cpu", "--", "--port", "1")
    assert (outcome.code, "other arguments" in outcome.err) == (1, True)


@pytest.mark.parametrize("state", [EngineState.SERVING, EngineState.DRAINING])
def test_an_engine_with_work_is_refused(tfctl, daemon_in, state):
    daemon = daemon_in(state)
    outcome = tfctl("profile", "measure")
    assert outcome.code == 1
    assert "only an idle one" in outcome.err
    assert [path for method, path, _ in daemon.seen if method != "GET"] == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--output", "/tmp/another.toml"), 2),
        (("--output", "/nowhere/demo-cpu.toml"), 2),
        (("--profile", "nosuch"), 78),
        (("--as", "../x"), 2),
        (("--window", "0"), 2),
        (("--window", "nan"), 2),
    ],
)
def test_bad_wishes(tfctl, daemon, arguments, code):
    assert tfctl("profile", "measure", *arguments).code == code


def test_the_machine_is_told_without_its_name():
    import socket

    from tfctl.profile.measure import machine

    assert " x " in machine()
    assert socket.gethostname() not in machine()


def test_the_key_is_in_a_file_or_in_a_variable(tmp_path, monkeypatch):
    path = tmp_path / "key"
    path.write_text("from the file\n")
    engine = {"api_key_file": str(path)}
    monkeypatch.setenv("KEY", "from the variable")
    assert client_key(engine, None) == "from the file"
    assert client_key(engine, "KEY") == "from the variable"
    assert client_key({}, None) is None
    with pytest.raises(UsageError):
        client_key(engine, "NOSUCH")
    path.write_text(" \n")
    with pytest.raises(ConfigurationError, match="holds none"):
        client_key(engine, None)
    path.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read") as missing:
        client_key(engine, None)
    assert "--api-key-env" in (missing.value.hint or "")


def test_a_key_that_is_not_ours_to_read(tmp_path, monkeypatch):
    def refuse(*_args: object, **_options: object) -> str:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(PermissionDeniedError, match="only the daemon can read its credential clients"):
        client_key({"api_key_file": "credential:clients"}, None)
    monkeypatch.setattr("pathlib.Path.read_text", refuse)
    with pytest.raises(PermissionDeniedError, match="Permission denied") as refused:
        client_key({"api_key_file": str(tmp_path)}, None)
    assert "--api-key-env" in (refused.value.hint or "")


@pytest.mark.parametrize(("load", "is_told"), [(0.1, False), (50.0, True)])
def test_a_busy_machine_is_told(monkeypatch, load, is_told):
    from tfctl.profile.measure import busy_with

    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert (busy_with() is not None) is is_told
