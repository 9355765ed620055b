"""Every test of tfctl has a home of its own: no setting, socket or profile of the host is seen."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_daemon import FakeDaemon

from tokenflow import locations
from tokenflow.wire import EngineState

MODES = ("serving", "busy", "starting", "draining", "stopped", "failed", "wedged")


@dataclass
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def home(monkeypatch):
    # Not tmp_path: a socket's path is short or it is none.
    folder = Path(tempfile.mkdtemp(prefix="tf-"))
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        (folder / name).mkdir()
        monkeypatch.setenv(name, str(folder / name))
    monkeypatch.setattr(locations, "_SYSTEM_RUNTIME", folder / "run")
    monkeypatch.setattr(locations, "_SYSTEM_CONFIG", folder / "etc")
    monkeypatch.setattr(locations, "_SYSTEM_STATE", folder / "lib")
    for name in ("NO_COLOR", "TOKENFLOW_DEBUG", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    (folder / "XDG_RUNTIME_DIR" / "tokenflow").mkdir(mode=0o700)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def socket_path(home) -> Path:
    return home / "XDG_RUNTIME_DIR" / "tokenflow" / "control.sock"


@pytest.fixture
def daemon(socket_path):
    with FakeDaemon(socket_path) as fake:
        yield fake


@pytest.fixture
def daemon_in(socket_path):
    """Starts a daemon in a state, by name; `garbage` is one that speaks no HTTP."""
    running = []

    def start(state: str) -> FakeDaemon:
        if state == "garbage":
            fake = FakeDaemon(socket_path, garbage=b"\x00\x01 what\r\n\r\n")
        elif state == "nonsense":
            fake = FakeDaemon(socket_path, garbage=b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"a": [1]')
        else:
            fake = FakeDaemon(socket_path, EngineState(state))
        running.append(fake)
        return fake

    yield start
    for fake in running:
        fake.close()


@pytest.fixture
def tfctl(home, capfd):
    """Runs one command line in this process."""
    from tfctl.main import run

    def call(*arguments: str) -> Outcome:
        capfd.readouterr()
        code = run(arguments)
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return call
