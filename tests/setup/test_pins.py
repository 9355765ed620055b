"""The pinned lists: complete, pinned, in agreement, and compared with what is installed."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tokenflow.setup import packages
from tokenflow.setup.host import has_gpu
from tokenflow.setup.pins import PinList, read_pins, unsatisfied

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("pins", list(PinList))
def test_everything_is_pinned_once(pins: PinList) -> None:
    requirements = read_pins(pins.path)
    assert requirements
    assert [str(pin) for pin in requirements if [part.operator for part in pin.specifier] != ["=="]] == []
    names = [canonicalize_name(pin.name) for pin in requirements]
    assert len(names) == len(set(names))


def test_lists_agree() -> None:
    engine = {canonicalize_name(pin.name): str(pin.specifier) for pin in read_pins(PinList.ENGINE_CPU.path)}
    differing = [
        str(pin)
        for pin in read_pins(PinList.DEV.path)
        if engine.get(canonicalize_name(pin.name), str(pin.specifier)) != str(pin.specifier)
    ]
    assert differing == []


def test_dev_list_covers_what_pyproject_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [Requirement(line) for line in project["dependencies"] + extras["daemon"] + extras["tui"] + extras["dev"]]
    pinned = {canonicalize_name(pin.name): pin for pin in read_pins(PinList.DEV.path)}
    unmet = [
        str(wish)
        for wish in wanted
        if not wish.specifier.contains(next(iter(pinned[canonicalize_name(wish.name)].specifier)).version)
    ]
    assert unmet == []


def test_engine_version_is_the_pinned_one() -> None:
    pinned = {pin.name: str(pin.specifier) for pin in read_pins(PinList.ENGINE_CPU_NO_DEPS.path)}
    assert pinned["sglang"] == f"=={packages.ENGINE_VERSION}"
    assert packages.TORCH_PIN in [str(pin) for pin in read_pins(PinList.ENGINE_CPU.path)]


def test_unsatisfied() -> None:
    installed = {"torch": "2.13.0+cpu", "numpy": "2.0"}
    pins = [
        Requirement(text)
        for text in ("torch==2.13.0", "numpy==2.4.6", "msgspec==0.23.0", 'colorama==1; sys_platform == "win32"')
    ]
    assert [pin.name for pin in unsatisfied(pins, installed.get)] == ["numpy", "msgspec"]


@pytest.mark.parametrize("path", ["proc/driver/nvidia/version", "dev/nvidiactl", "dev/kfd", "dev/dxg"])
def test_gpu_is_seen_by_its_driver(tmp_path: Path, path: str) -> None:
    assert not has_gpu(tmp_path)
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).touch()
    assert has_gpu(tmp_path)
