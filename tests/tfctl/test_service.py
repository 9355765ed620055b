"""`tfctl service`: the files of this installation, below a folder of the test's own."""

import json
import os
import sys
from pathlib import Path

import pytest

from tfctl import service
from tokenflow.errors import HostError


def test_install_show_and_uninstall_below_a_root(tfctl, tmp_path):
    root = tmp_path / "root"
    outcome = tfctl("service", "show", "--root", str(root), "--json")
    assert {file["state"] for file in json.loads(outcome.out)["files"]} == {"absent"}
    outcome = tfctl("service", "install", "--root", str(root), "--json")
    document = json.loads(outcome.out)
    assert (outcome.code, document["commands"]) == (0, [])
    assert {file["state"] for file in document["files"]} == {"same"}
    paths = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert paths == {
        "etc/systemd/system/tokenflowd.service",
        "etc/systemd/system/tokenflowd.socket",
        "etc/sysusers.d/tokenflow.conf",
        "etc/tmpfiles.d/tokenflow.conf",
    }
    unit = root / "etc/systemd/system/tokenflowd.service"
    assert unit.stat().st_mode & 0o777 == 0o644
    unit.write_text("# changed")
    assert "differs" in tfctl("service", "show", "--root", str(root)).out
    assert tfctl("service", "install", "--root", str(root)).out.count("installed") == 4
    outcome = tfctl("service", "uninstall", "--root", str(root))
    assert (outcome.code, outcome.out.count("absent")) == (0, 4)
    assert [path for path in root.rglob("*") if path.is_file()] == []
    assert tfctl("service", "uninstall", "--root", str(root)).code == 0


def test_exec_start_is_this_installation():
    [line] = [line for line in service.render()[service.SERVICE].splitlines() if line.startswith("ExecStart=")]
    program, *arguments = line.removeprefix("ExecStart=").split()
    assert os.access(program, os.X_OK)
    assert Path(program).parent == Path(sys.executable).parent
    assert arguments[-3:] == ["--system", "--log-format", "json"]


def test_only_root_may_install_into_the_system(tfctl, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for command in ("install", "uninstall"):
        outcome = tfctl("service", command)
        assert outcome.code == 77
        assert "sudo tfctl service install" in outcome.err


def test_a_program_that_the_services_user_could_not_reach(tmp_path: Path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(HostError) as caught:
        service._check_reachable(closed / "bin" / "python")
    assert "is closed to others" in caught.value.message


def test_a_root_that_cannot_be_written(tfctl, tmp_path):
    (tmp_path / "etc").write_text("a file")
    outcome = tfctl("service", "install", "--root", str(tmp_path))
    assert outcome.code == 1
    assert "cannot write" in outcome.err
