"""Which torch pip would install, judged on recorded reports of pip, and which one is installed."""

import copy
import json
from pathlib import Path

import pytest

from tokenflow.errors import HostError, OperationError
from tokenflow.setup import packages, pip, torch_build
from tokenflow.setup.torch_build import TorchBuild, judge_report, parse_version_file

DATA = Path(__file__).parent / "data"


def recorded(name: str) -> dict:
    return json.loads((DATA / f"{name}.json").read_text())


def relabelled(version: str, requires: list[str]) -> dict:
    report = copy.deepcopy(recorded("torch-cpu"))
    report["install"][0]["metadata"] |= {"version": version, "requires_dist": requires}
    return report


@pytest.mark.parametrize(
    ("name", "version", "is_cpu"),
    [("torch-cpu", "2.13.0+cpu", True), ("torch-cuda", "2.13.0", False), ("torch-aarch64-cuda", "2.13.0", False)],
)
def test_recorded_reports(name: str, version: str, is_cpu: bool) -> None:
    offered = judge_report(recorded(name))
    assert offered is not None
    assert (offered.version, offered.is_cpu) == (version, is_cpu)


@pytest.mark.parametrize(
    ("version", "requires", "is_cpu"),
    [
        ("2.13.0", ["filelock", "sympy>=1.13.3"], True),  # no label, as CPU builds for aarch64 have been published
        ("2.13.0", ["filelock", 'nvidia-nccl-cu13==2.29.7; platform_system == "Linux"'], False),
        ("2.13.0", ['nvidia-nccl-cu13==2.29.7; platform_system == "Windows"'], True),  # not on this machine
        ("2.13.0", ['triton==3.7.1; extra == "compile"'], True),  # only when asked for
        ("2.13.0+cu130", ["filelock"], False),
        ("2.13.0+rocm7.0", ["filelock"], False),
        ("2.13.0+cpu", ["filelock"], True),
        ("2.13.0+cpu.cxx11.abi", [], True),
    ],
)
def test_label_first_then_requirements(version: str, requires: list[str], is_cpu: bool) -> None:
    offered = judge_report(relabelled(version, requires))
    assert offered is not None
    assert offered.is_cpu is is_cpu


def test_report_without_torch() -> None:
    assert judge_report({"install": []}) is None


def test_cuda_offer_is_refused_before_any_install(monkeypatch: pytest.MonkeyPatch) -> None:
    installs: list[object] = []
    monkeypatch.setattr(torch_build, "installed_build", lambda: None)
    monkeypatch.setattr(pip, "dry_run_report", lambda requirement: recorded("torch-cuda"))
    monkeypatch.setattr(pip, "install", lambda arguments, report: installs.append(arguments))
    with pytest.raises(HostError) as refusal:
        packages.install_cpu(lambda text: None)
    assert installs == []
    assert "nothing was downloaded" in refusal.value.message
    assert refusal.value.hint is not None
    assert "PIP_FIND_LINKS" in refusal.value.hint
    assert "tfctl engine install --cpu" in refusal.value.hint


def test_the_judged_build_is_what_gets_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installs: list[list[str]] = []
    monkeypatch.setattr(torch_build, "installed_build", lambda: TorchBuild.CUDA)
    monkeypatch.setattr(pip, "dry_run_report", lambda requirement: recorded("torch-cpu"))
    monkeypatch.setattr(pip, "install", lambda arguments, report: installs.append(list(arguments)))
    with pytest.raises(OperationError):  # nothing was really installed, and that is noticed
        packages.install_cpu(lambda text: None)
    assert installs[0][0] == "torch==2.13.0+cpu"
    assert installs[1][0] == "--no-deps"


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", TorchBuild.CPU),
        ("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", TorchBuild.CUDA),
        ("cuda = None\nhip = '7.0'\n", TorchBuild.ROCM),
        ("cuda = None\nhip = None\nxpu = '20260101'\n", TorchBuild.XPU),
        ("__version__ = '2.13.0'\n", TorchBuild.UNKNOWN),
        ("cuda = (", TorchBuild.UNKNOWN),
    ],
)
def test_version_file(text: str, build: TorchBuild) -> None:
    assert parse_version_file(text) is build


@pytest.mark.parametrize(
    ("device", "build", "gpu", "names"),
    [
        ("cpu", TorchBuild.CUDA, False, ["CUDA build", "no GPU", "tfctl engine install --cpu"]),
        ("cuda", TorchBuild.CPU, True, ["CPU build", "tfctl engine install --cuda"]),
        ("cuda", TorchBuild.CUDA, False, ["asks for a GPU", "tfctl start demo-cpu"]),
    ],
)
def test_unsuitable_torch(
    monkeypatch: pytest.MonkeyPatch, device: str, build: TorchBuild, gpu: bool, names: list[str]
) -> None:
    monkeypatch.setattr(torch_build, "installed_build", lambda: build)
    monkeypatch.setattr(packages, "has_gpu", lambda: gpu)
    monkeypatch.setattr(packages, "installed_version", lambda name: "2.13.0")
    with pytest.raises(HostError) as refusal:
        packages.check_torch_build(device)
    text = f"{refusal.value.message} {refusal.value.hint}"
    assert [name for name in names if name not in text] == []
    assert refusal.value.exit_code == 78


def test_missing_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed_version", lambda name: None)
    with pytest.raises(HostError) as refusal:
        packages.check_torch_build("cpu")
    assert refusal.value.hint == "run: tfctl engine install --cpu"


@pytest.mark.parametrize(
    ("device", "build", "gpu"), [("cpu", "cpu", False), ("cpu", "cuda", True), ("cuda", "cuda", True)]
)
def test_suitable_torch(monkeypatch: pytest.MonkeyPatch, device: str, build: str, gpu: bool) -> None:
    monkeypatch.setattr(torch_build, "installed_build", lambda: TorchBuild(build))
    monkeypatch.setattr(packages, "has_gpu", lambda: gpu)
    monkeypatch.setattr(packages, "installed_version", lambda name: "2.13.0")
    packages.check_torch_build(device)
