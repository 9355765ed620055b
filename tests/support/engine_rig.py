"""A place of its own for a daemon and an engine: sockets, state and settings in one short folder in /tmp."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import tomlkit

PROFILE = "demo-cpu"
_PROFILES = Path(__file__).parents[2] / "profiles"
START_LIMIT_S = 300.0
_SYSTEM_SOCKET = Path("/run/tokenflow/control.sock")
END_LIMIT_S = 30.0


class Rig:
    """Runs tfctl in an environment of its own. The cache stays the user's: the model is made once."""

    def __init__(self) -> None:
        if _SYSTEM_SOCKET.exists():
            pytest.skip(
                f"a system daemon runs here ({_SYSTEM_SOCKET}); tfctl would take it and not one of the test's own"
            )
        self.folder = Path(tempfile.mkdtemp(prefix="tf-", dir="/tmp"))  # short: a socket's path has 107 bytes
        self.runtime = self.folder / "run"
        self.state = self.folder / "state"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TOKENFLOW_")}
        for name, folder in (
            ("XDG_RUNTIME_DIR", self.runtime),
            ("XDG_STATE_HOME", self.state),
            ("XDG_CONFIG_HOME", self.folder / "config"),
        ):
            folder.mkdir(mode=0o700)
            self.environment[name] = str(folder)
        self.environment["NO_COLOR"] = "1"
        self.environment["TOKENFLOW_METRICS_LISTEN"] = "127.0.0.1:0"
        self.admin_key = "the-tests-own"  # of SGLang's admin routes, which are closed to everybody else
        key_file = self.folder / "admin.key"
        key_file.write_text(self.admin_key)
        key_file.chmod(0o600)
        self.environment["TOKENFLOW_ADMIN_KEY_FILE"] = str(key_file)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir(mode=0o700)
        self.environment["TMPDIR"] = str(self.temporary)
        self.shared_files: set[Path] = set()
        self._sessions: set[int] = set()

    def tfctl(self, *arguments: str, timeout_s: float = START_LIMIT_S) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, whatever its exit code."""
        return self.python("-m", "tfctl.main", *arguments, timeout_s=timeout_s)

    def python(self, *arguments: str, timeout_s: float = START_LIMIT_S) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def json(self, *arguments: str) -> dict[str, Any]:
        """The document of `tfctl --json ARGUMENTS`."""
        result = self.tfctl("--json", *arguments)
        assert result.stdout, f"tfctl {arguments}: exit code {result.returncode}, {result.stderr}"
        document = json.loads(result.stdout)
        assert isinstance(document, dict)
        return document

    def start(self, *engine_arguments: str) -> None:
        """Brings daemon and engine up on a free port."""
        self._start(PROFILE, *engine_arguments)

    def start_with_profile(self, **sections: dict[str, object]) -> None:
        """Brings them up under demo-cpu with sections of the profile changed."""
        self.write_profile("changed", **sections)
        self._start("changed")

    def write_profile(self, name: str, **sections: dict[str, object]) -> Path:
        """As demo-cpu, with sections changed. Returns where it is."""
        profile = tomlkit.parse((_PROFILES / f"{PROFILE}.toml").read_text())
        profile["name"] = name
        for section, changes in sections.items():
            profile.setdefault(section, tomlkit.table()).update(changes)
        path = self.folder / "config" / "tokenflow" / "profiles" / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(tomlkit.dumps(profile))
        return path

    def _start(self, profile: str, *engine_arguments: str) -> None:
        result = self.tfctl("start", profile, "--", "--port", "0", *engine_arguments)
        assert result.returncode == 0, (
            f"tfctl start: {result.returncode}\n{result.stdout}\n{result.stderr}\n{self.log()}"
        )
        self.learn_shared_files()

    def stop(self) -> None:
        result = self.tfctl("stop", "--daemon")
        assert result.returncode == 0, f"tfctl stop: {result.returncode}\n{result.stdout}\n{result.stderr}"

    def status(self) -> dict[str, Any]:
        return self.json("status")

    @property
    def url(self) -> str:
        return str(self.status()["engine"]["url"])

    @property
    def model(self) -> str:
        return str(self.status()["engine"]["model"])

    def rows(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """The rows of `tfctl ps`, by rid."""
        return {row["rid"]: row for row in self.json("ps", *arguments)["requests"]}

    def row_when(self, rid: str, condition: Callable[[dict[str, Any]], bool], limit_s: float = 30.0) -> dict[str, Any]:
        """A request's row as soon as it meets the condition. Telemetry is a moment behind the streams."""
        deadline_s = time.monotonic() + limit_s
        row = None
        while time.monotonic() < deadline_s:
            row = self.rows("--all").get(rid)
            if row is not None and condition(row):
                return row
            time.sleep(0.1)
        raise AssertionError(f"no such row within {limit_s} s; the last one of {rid}: {row}")

    def describe(self) -> str:
        engine = self.status()["engine"]
        what = (f"SGLang {engine['version']}", f"profile {engine['profile']}", f"model {engine['model']}")
        return ", ".join((*what, f"plugin {engine['plugin']}"))

    def log(self, line_count: int = 40) -> str:
        """The last lines of the engine's and the daemon's logs, for the message of a failed test."""
        parts = []
        for path in sorted(self.state.rglob("*.log")):
            lines = path.read_text(errors="replace").splitlines()[-line_count:]
            parts.append(f"--- {path.name}\n" + "\n".join(lines))
        return "\n".join(parts)

    def processes(self) -> list[psutil.Process]:
        """Every process that was started in this place, however it was detached.

        The environment gives it away; but SGLang's scheduler and detokenizer overwrite theirs with their title, so
        whatever shares a session with a process that was once found here counts too.
        """
        found, others = [], []
        for process in psutil.process_iter():
            try:
                session = os.getsid(process.pid)
                if process.environ().get("XDG_RUNTIME_DIR") == str(self.runtime):
                    self._sessions.add(session)
                    found.append(process)
                else:
                    others.append((session, process))
            except (psutil.Error, ProcessLookupError, PermissionError):
                continue  # gone, a zombie, or somebody else's
        mine = os.getsid(0)
        return found + [process for session, process in others if session in self._sessions and session != mine]

    def sockets(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]

    def learn_shared_files(self) -> set[Path]:
        """The files in /dev/shm that processes of this place map now. They are remembered: see `files_left`."""
        found = set()
        for process in self.processes():
            try:
                lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
            except OSError:
                continue
            paths = {Path(fields[5]) for line in lines if len(fields := line.split(maxsplit=5)) == 6}
            found |= {path for path in paths if path.is_relative_to("/dev/shm") and path.exists()}
        self.shared_files |= found
        return found

    def files_left(self) -> set[Path]:
        """Shared memory and temporary files that exist now, of whatever ran in this place."""
        return {path for path in self.shared_files if path.exists()} | set(self.temporary.iterdir())

    def assert_nothing_left(self) -> None:
        """No process, no socket and no link folder, within a moment: the daemon answers before it ends itself."""
        deadline_s = time.monotonic() + END_LIMIT_S
        while self.processes() and time.monotonic() < deadline_s:
            time.sleep(0.1)
        left = [(process.pid, process.name()) for process in self.processes()]
        assert not left, f"processes left: {left}\n{self.log()}"
        assert self.sockets() == []
        folders = [path for path in (self.runtime / "tokenflow").glob("*") if path.is_dir()]
        assert folders == []
        assert self.files_left() == set()

    def clear(self) -> None:
        """Ends what is left by force and removes the folder: for after a failure, and for tests that kill things."""
        for process in self.processes():
            try:
                process.send_signal(signal.SIGKILL)
                process.wait(END_LIMIT_S)
            except psutil.Error:
                continue
        shutil.rmtree(self.folder, ignore_errors=True)
