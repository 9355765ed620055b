"""Each test has folders of its own, and none may leave a process behind."""

import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from daemon_rig import ENGINE, Rig, run_daemon, scripted_processes, write_profile


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folders of our own, with a short path: socket paths have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="tfd-") as folder:
        for variable in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            path = Path(folder) / variable[4:].lower()
            path.mkdir()
            monkeypatch.setenv(variable, str(path))
        for name in [name for name in os.environ if name.startswith("TOKENFLOW_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("TOKENFLOW_FLIGHT_RECORDER_BYTES", "0")  # it writes by the clock
        monkeypatch.setenv("TOKENFLOW_ENGINE_COMMAND", json.dumps(ENGINE))
        monkeypatch.setenv("TOKENFLOW_METRICS_LISTEN", "")
        for name, script in (("scripted", "serve"), ("other", "serve")):
            write_profile(name, script)
        yield Path(folder)
        assert scripted_processes(Path(folder)) == []


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[Rig]:
    async with run_daemon() as running:
        yield running
