"""The way to the daemon: which socket, what is refused, what is said about versions."""

import json
import os
import socket
import stat
import threading

import msgspec
import pytest
from fake_daemon import FakeDaemon

from tfctl import client as client_module
from tfctl.client import Client, answers, find_socket, wait_until_gone
from tokenflow.errors import (
    BadAnswerError,
    DaemonUnreachableError,
    PermissionDeniedError,
    SocketPathError,
    TimedOutError,
)
from tokenflow.wire import EngineState, ModeDocument, StatusDocument


def test_the_first_socket_that_answers_is_taken(home, socket_path):
    system = home / "run" / "control.sock"
    system.parent.mkdir()
    assert find_socket(None) is None
    with FakeDaemon(socket_path):
        assert find_socket(None) == socket_path
        with FakeDaemon(system):
            assert find_socket(None) == system
        assert find_socket(home / "nowhere.sock") is None


def test_a_stale_socket_does_not_answer(socket_path):
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(socket_path))
    assert stat.S_ISSOCK(os.stat(socket_path).st_mode)
    assert not answers(socket_path)
    with pytest.raises(DaemonUnreachableError, match="not running"):
        Client(socket_path).get("/v1/status", StatusDocument)


def test_a_forbidden_socket_is_named_unless_another_answers(home, socket_path, monkeypatch):
    real_answers = client_module.answers
    forbidden = home / "run" / "control.sock"

    def refuse(path, timeout_s=2.0):
        if path == forbidden:
            raise client_module.permission_denied(path)
        return real_answers(path, timeout_s)

    monkeypatch.setattr(client_module, "answers", refuse)
    with pytest.raises(PermissionDeniedError, match=str(forbidden)) as caught:
        find_socket(None)
    assert "usermod" in caught.value.hint
    with FakeDaemon(socket_path):
        assert find_socket(None) == socket_path


def test_permission_denied_is_77(tfctl, monkeypatch):
    def refuse(path, timeout_s=2.0):
        raise client_module.permission_denied(path)

    monkeypatch.setattr(client_module, "answers", refuse)
    for command in (("status",), ("ps",), ("stop",), ("start", "demo-cpu")):
        assert tfctl(*command).code == 77


def test_a_path_too_long_is_told(home):
    with pytest.raises(SocketPathError):
        find_socket(home / ("x" * 120))


def test_what_is_no_socket_is_told(home, tfctl):
    for path in (home, home / "precious"):
        if path != home:
            path.write_text("text")
        for command in (("status",), ("ps",), ("stop",), ("start", "demo-cpu")):
            outcome = tfctl("--socket", str(path), *command)
            assert outcome.code == 78
            assert f"error: {path} exists and is no socket\n" in outcome.err
    assert path.read_text() == "text"


@pytest.mark.parametrize("form", [("--socket", "{}"), ("--socket={}",)])
def test_hints_name_the_socket_that_was_given(form, home, tfctl):
    path = home / "my own.sock"
    options = [word.format(path) for word in form]
    wanted = f"tfctl --socket '{path}' start"
    assert tfctl("ps", *options).err.splitlines()[1] == f"hint:  start it: {wanted}"
    assert tfctl(*options, "status").out.splitlines()[1] == f"  start it: {wanted}"
    assert json.loads(tfctl(*options, "ps", "--json").out)["error"]["hint"] == f"start it: {wanted}"
    assert "--socket" not in tfctl("ps").err
    with FakeDaemon(path, EngineState.STARTING):
        assert f"wait for it: tfctl --socket '{path}' wait --for serving" in tfctl(*options, "status").out
        told = tfctl(*options, "start", "demo-cpu").out
        assert told.count(f"tfctl --socket '{path}' ") == 3
        assert f"tfctl --socket '{path}' ps --help" not in tfctl(*options, "ps", "--nosuch").err


def test_a_silent_daemon_times_out(socket_path):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(socket_path))
        silent.listen()
        with pytest.raises(TimedOutError, match=r"within 0\.2 s"):
            Client(socket_path, 0.2).get("/v1/status", StatusDocument)


def test_a_silent_daemon_is_an_unknown_status(socket_path, tfctl):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(socket_path))
        silent.listen()
        assert tfctl("status", "--timeout", "0.2").code == 4
        assert tfctl("ps", "--timeout", "0.2").code == 75


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_nonsense_is_a_bad_answer(content, socket_path):
    with FakeDaemon(socket_path, garbage=content), pytest.raises(BadAnswerError):
        Client(socket_path).get("/v1/status", StatusDocument)


def test_a_daemon_that_goes_away_in_the_middle_has_ended(socket_path):
    with socket.socket(socket.AF_UNIX) as dying:
        dying.bind(str(socket_path))
        dying.listen()

        def die():
            connection, _ = dying.accept()
            connection.recv(65536)
            dying.close()
            connection.close()

        thread = threading.Thread(target=die)
        thread.start()
        with pytest.raises(DaemonUnreachableError, match="the daemon has ended") as caught:
            Client(socket_path, 10).get("/v1/status", StatusDocument)
        thread.join()
    assert caught.value.code == "daemon_unreachable"
    assert "tfctl start" in caught.value.hint


def test_a_daemon_that_has_answered_and_is_gone_has_ended(daemon):
    client = Client(daemon.path)
    client.get("/v1/status", StatusDocument)
    daemon.close()
    with pytest.raises(DaemonUnreachableError, match="the daemon has ended"):
        client.get("/v1/status", StatusDocument)


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf"])
def test_no_time_is_no_time_limit(limit, tfctl, daemon):
    outcome = tfctl("--timeout", limit, "status")
    assert outcome.code == 2
    assert "is not a number of seconds above 0" in outcome.err
    assert daemon.seen == []


def test_an_unknown_path_is_an_error_with_a_hint(daemon):
    with pytest.raises(BadAnswerError, match="404"):
        Client(daemon.path).get("/v1/nosuch", ModeDocument)


def test_another_version_is_one_warning(tfctl, daemon):
    daemon.version = "9.9.9"
    outcome = tfctl("ps", "--json", "--watch=0.1")
    assert outcome.err.count("warning:") == 1
    assert "9.9.9" in outcome.err
    assert len(outcome.out.splitlines()) == daemon.watch_count
    assert tfctl("-q", "status").err == ""


def test_wait_until_gone(daemon):
    assert not wait_until_gone(daemon.path, None, 0.1)
    daemon.close()
    assert not wait_until_gone(daemon.path, os.getpid(), 0.1)
    assert wait_until_gone(daemon.path, 2**22 + 1, 0.1)


def test_unknown_fields_of_a_newer_daemon_are_no_matter(daemon, socket_path):
    daemon.close()
    document = msgspec.json.decode(
        msgspec.json.encode({"schema": "tokenflow.mode/1", "mode": "off", "revision": 1, "new": 2})
    )
    content = msgspec.json.encode(document)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\n\r\n".encode()
    with FakeDaemon(socket_path, garbage=head + content):
        assert Client(socket_path).get("/v1/mode", ModeDocument).mode == "off"
