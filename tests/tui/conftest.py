"""The live view is tested against the same fake daemon as tfctl."""

import shutil
import tempfile
from pathlib import Path

import pytest
from fake_daemon import FakeDaemon

from tokenflow_tui.app import LiveView


@pytest.fixture
def folder():
    path = Path(tempfile.mkdtemp(prefix="tf-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def daemon(folder):
    with FakeDaemon(folder / "control.sock") as fake:
        yield fake


@pytest.fixture
def app(daemon, folder):
    return LiveView(daemon.path, explicit=daemon.path)
