"""The units as systemd itself reads them. CI has systemd; elsewhere these are skipped and say so."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tfctl import service

FOLDER = Path(__file__).parents[2] / "systemd"
EXPOSURE_MOST = 2.5
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here (Debian, Ubuntu: apt install systemd)"
)


@pytest.fixture
def rendered(tmp_path: Path) -> Path:
    """The units with an ExecStart that exists here."""
    for name, text in service.render().items():
        (tmp_path / name).write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    return tmp_path


def analyze(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SYSTEMD_COLORS": "0", "SYSTEMD_LOG_LEVEL": "warning"}
    return subprocess.run(
        ["systemd-analyze", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )


@needs_systemd
def test_systemd_accepts_every_line(rendered: Path):
    done = analyze(rendered, "verify", "--man=no", f"./{service.SERVICE}", f"./{service.SOCKET}")
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "tokenflow" in line]
    assert (done.returncode, ours) == (0, [])


@needs_systemd
def test_a_wrong_line_would_be_found(rendered: Path):
    path = rendered / service.SERVICE
    path.write_text(path.read_text().replace("[Service]", "[Service]\nNoSuchKey=1"))
    done = analyze(rendered, "verify", "--man=no", f"./{service.SERVICE}")
    assert "NoSuchKey" in done.stdout + done.stderr


@needs_systemd
def test_the_service_is_exposed_to_little(rendered: Path):
    threshold = str(int(EXPOSURE_MOST * 10))
    done = analyze(
        rendered, "security", "--offline=true", "--no-pager", f"--threshold={threshold}", f"./{service.SERVICE}"
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    score = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert score is not None
    assert float(score.group(1)) <= EXPOSURE_MOST


def settings_of(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (FOLDER / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_what_a_running_engine_and_cuda_need_stays_open():
    unit = settings_of(service.SERVICE)
    assert unit["KillMode"] == ["process"]
    assert unit["RuntimeDirectoryPreserve"] == ["yes"]
    assert unit["Type"] == ["notify"]  # notify-reload is not known to systemd 252
    for key, value in (("PrivateDevices", "no"), ("MemoryDenyWriteExecute", "no"), ("RemoveIPC", "no")):
        assert unit[key] == [value]
    assert {"char-nvidia rw", "char-nvidia-uvm rw", "char-nvidia-caps rw"} <= set(unit["DeviceAllow"])
    assert unit["LimitMEMLOCK"] == ["infinity"]
    assert unit["RestartPreventExitStatus"] == ["78"]


def test_the_socket_is_the_one_that_clients_look_for():
    from tokenflow import locations

    unit = settings_of(service.SOCKET)
    assert unit["ListenStream"] == [str(locations.system_socket())]
    assert (unit["SocketMode"], unit["SocketGroup"]) == (["0660"], ["tokenflow"])


@pytest.mark.skipif(shutil.which("systemd-tmpfiles") is None, reason="systemd-tmpfiles is not here")
def test_the_folders_can_be_made(tmp_path: Path):
    """As root, or as anybody: owners are left out, since the user may not exist here."""
    text = (FOLDER / "tokenflow.tmpfiles.conf").read_text()
    config = tmp_path / "tokenflow.conf"
    config.write_text(re.sub(r" (tokenflow|root) +(tokenflow|root) ", " - - ", text))
    root = tmp_path / "root"
    root.mkdir()
    done = subprocess.run(
        ["systemd-tmpfiles", f"--root={root}", "--create", str(config)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert {str(path.relative_to(root)) for path in root.rglob("*")} >= {"run/tokenflow", "etc/tokenflow/profiles.d"}
