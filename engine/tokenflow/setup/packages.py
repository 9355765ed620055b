"""The engine's packages in the running environment: install, describe, check. Imports nothing heavy.

pip's own settings are honoured throughout (`PIP_FIND_LINKS`, `PIP_INDEX_URL`, `PIP_EXTRA_INDEX_URL`,
`PIP_CONSTRAINT`, pip.conf). Nothing is downloaded when the pins are met already.
"""

import platform
import sys

import msgspec
from packaging.requirements import Requirement

from tokenflow.errors import HostError, OperationError
from tokenflow.setup import pip, torch_build
from tokenflow.setup.host import has_gpu
from tokenflow.setup.pins import PinList, installed_version, read_pins, unsatisfied
from tokenflow.setup.torch_build import TorchBuild

ENGINE_VERSION = "0.5.23"  # of SGLang; the plugin checks it as well
TORCH_PIN = "torch==2.13.0"
IN_PLACE = "the engine's packages are all in place"

_NEWEST_PYTHON = (3, 13)  # SGLang 0.5.23 is published for these
_GET_CPU_BUILD = (
    "give pip the CPU build of torch: set PIP_FIND_LINKS to a folder that holds its wheel, or PIP_EXTRA_INDEX_URL "
    "to the CPU index that the 'Get started' page of PyTorch names; then run: tfctl engine install --cpu"
)


class EngineSetDescription(msgspec.Struct, kw_only=True):
    """What `tfctl engine show` tells about the engine's packages in this environment."""

    python_version: str
    environment: str  # the folder of the environment
    sglang_version: str | None
    expected_sglang_version: str
    torch_version: str | None
    torch_build: TorchBuild | None
    has_gpu: bool
    stand_ins: list[str]  # packages that the launcher stands in for, because they are not installed
    unmet_cpu_pins: list[str]  # what `install --cpu` would install
    is_ready_for_cpu: bool
    is_ready_for_cuda: bool


def describe() -> EngineSetDescription:
    """The engine's packages as they are now."""
    from tokenflow.sglang.standins import missing_packages

    build = torch_build.installed_build()
    unmet = _unmet_cpu_pins(build)
    sglang = installed_version("sglang")
    has_sglang = sglang == ENGINE_VERSION
    return EngineSetDescription(
        python_version=platform.python_version(),
        environment=sys.prefix,
        sglang_version=sglang,
        expected_sglang_version=ENGINE_VERSION,
        torch_version=installed_version("torch"),
        torch_build=build,
        has_gpu=has_gpu(),
        stand_ins=list(missing_packages()) if sglang else [],
        unmet_cpu_pins=unmet,
        is_ready_for_cpu=has_sglang and not unmet,
        is_ready_for_cuda=has_sglang and build is TorchBuild.CUDA and has_gpu(),
    )


def install_cpu(report: pip.Report) -> None:
    """Installs the pinned CPU set. Raises HostError before any download if pip would take a CUDA build of torch."""
    _check_python()
    build = torch_build.installed_build()
    if not _unmet_cpu_pins(build):
        report(IN_PLACE)
        return
    torch_pin = TORCH_PIN
    if build is not TorchBuild.CPU or unsatisfied([Requirement(TORCH_PIN)]):
        report("asking pip which build of torch it would install")
        torch_pin = _offered_cpu_torch(report)
    report(f"installing the engine's packages for the CPU into {sys.prefix} (about 320 MB to download, 1.6 GB on disk)")
    pip.install([torch_pin, "-r", str(PinList.ENGINE_CPU.path)], report)
    pip.install(["--no-deps", "-r", str(PinList.ENGINE_CPU_NO_DEPS.path)], report)
    left = _unmet_cpu_pins(torch_build.installed_build())
    if left:
        raise OperationError(
            f"pip finished, but these packages are not in place: {', '.join(left)}",
            hint="look for what changed them (a constraint?) with: tfctl engine show",
        )


def install_cuda(report: pip.Report) -> None:
    """Installs SGLang with its own dependency set, for a host with a GPU."""
    _check_python()
    report(f"installing sglang {ENGINE_VERSION} with its own dependencies into {sys.prefix} (about 11 GB on disk)")
    pip.install([f"sglang=={ENGINE_VERSION}", "pyzmq>=26"], report)


def check_torch_build(device: str) -> None:
    """Raises HostError if the installed packages cannot run an engine on `device` ("cpu" or "cuda") on this machine."""
    install = f"tfctl engine install --{device}"
    missing = [name for name in ("sglang", "torch") if installed_version(name) is None]
    if missing:
        raise HostError(f"the engine is not installed here: {' and '.join(missing)} missing", hint=f"run: {install}")
    build, version = torch_build.installed_build(), installed_version("torch")
    if device == "cpu" and build is not TorchBuild.CPU and not has_gpu():
        raise HostError(
            f"torch {version} in this environment is a {_build_name(build)} build, and this machine has no GPU",
            hint=f"replace it with the CPU build: {install}",
        )
    if device == "cuda" and not has_gpu():
        raise HostError("the profile asks for a GPU, and this machine has none", hint="try: tfctl start demo-cpu")
    if device == "cuda" and build is TorchBuild.CPU:
        raise HostError(f"torch {version} in this environment is a CPU build", hint=f"run: {install}")


def _check_python() -> None:
    if sys.version_info[:2] > _NEWEST_PYTHON:
        raise HostError(
            f"the engine's packages exist for Python 3.11 to {_NEWEST_PYTHON[0]}.{_NEWEST_PYTHON[1]}, "
            f"this is Python {platform.python_version()}",
            hint="make an environment with an older Python and install TokenFlow there",
        )


def _unmet_cpu_pins(build: TorchBuild | None) -> list[str]:
    """The pins of the CPU set that are not met; torch is not met by a build for an accelerator either."""
    pins = read_pins(PinList.ENGINE_CPU.path) + read_pins(PinList.ENGINE_CPU_NO_DEPS.path)
    unmet = [str(pin) for pin in unsatisfied(pins)]
    if build is not TorchBuild.CPU and TORCH_PIN not in unmet:
        unmet.append(TORCH_PIN)
    return unmet


def _offered_cpu_torch(report: pip.Report) -> str:
    """The requirement for exactly the build that pip has on offer. Raises HostError if it is no CPU build."""
    offered = torch_build.judge_report(pip.dry_run_report(TORCH_PIN))
    if offered is None:
        raise OperationError("pip would install no torch at all", hint=_GET_CPU_BUILD)
    if not offered.is_cpu:
        raise HostError(
            f"pip would install a GPU build of torch {offered.version} ({offered.evidence}); nothing was downloaded",
            hint=_GET_CPU_BUILD,
        )
    report(f"pip would install torch {offered.version}, a CPU build ({offered.evidence})")
    return f"torch=={offered.version}"


def _build_name(build: TorchBuild | None) -> str:
    return build.value.upper() if build in (TorchBuild.CUDA, TorchBuild.XPU) else str(build)
