"""A built wheel carries what an installation without a checkout needs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    completed = subprocess.run(
        [*command, "--wheel-dir", str(folder), str(ROOT)], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_profiles_and_pins_are_inside(names: set[str]) -> None:
    for folder in ("profiles", "systemd"):
        shipped = {path.name for path in (ROOT / folder).iterdir() if not path.name.startswith(".")}
        inside = {name.rpartition("/")[2] for name in names if name.startswith(f"tokenflow/_data/{folder}/")}
        assert shipped <= inside, folder
    assert "tokenflow/_data/profiles/demo-cpu.toml" in names
    assert "tokenflow/_data/systemd/tokenflowd.service" in names
    for name in ("engine-cpu.txt", "engine-cpu-no-deps.txt"):
        assert f"tokenflow/setup/requirements/{name}" in names


def test_every_performance_model_is_inside_and_no_table(names: set[str]) -> None:
    inside = {name.rpartition("/")[2] for name in names if name.startswith("tokenflow/sim/models/data/")}
    assert inside == {path.name for path in (ROOT / "engine/tokenflow/sim/models/data").iterdir()}
    assert "tokenflow/sim/models/hardware.toml" in names
    assert not any(name.endswith((".csv", ".gz", ".jsonl")) for name in names)


def test_all_packages_are_inside_and_typed(names: set[str]) -> None:
    for package in ("tokenflow", "tokenflowd", "tfctl", "tokenflow_tui"):
        assert f"{package}/__init__.py" in names
        assert f"{package}/py.typed" in names
    assert not any(name.startswith("tests/") for name in names)
