"""Which build of torch is installed, and which one pip would install. Neither question imports torch."""

import ast
import importlib.util
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

_ACCELERATOR_PACKAGES = re.compile(r"(nvidia|cuda|triton|pytorch-triton|rocm|intel-)([-_.].*)?$", re.IGNORECASE)


class TorchBuild(StrEnum):
    """What a torch is compiled for."""

    CPU = "cpu"
    CUDA = "cuda"
    ROCM = "rocm"
    XPU = "xpu"
    UNKNOWN = "unknown"  # its version file says nothing that we understand


class OfferedTorch(msgspec.Struct, frozen=True, kw_only=True):
    """The torch that pip would install here."""

    version: str
    source: str  # where pip would take it from, as a URL
    is_cpu: bool
    evidence: str  # why it was judged so, for people


def installed_build() -> TorchBuild | None:
    """The build of the installed torch, read from its `version.py`; None when torch is not installed."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return TorchBuild.UNKNOWN
    return parse_version_file(text)


def parse_version_file(text: str) -> TorchBuild:
    """Reads the assignments of torch's generated `version.py`: `cuda`, `hip` and `xpu` are a version or None."""
    try:
        values = _assigned_constants(ast.parse(text))
    except SyntaxError:
        return TorchBuild.UNKNOWN
    if "cuda" not in values:
        return TorchBuild.UNKNOWN
    if values["cuda"]:
        return TorchBuild.CUDA
    if values.get("hip"):
        return TorchBuild.ROCM
    return TorchBuild.XPU if values.get("xpu") else TorchBuild.CPU


def _assigned_constants(module: ast.Module) -> dict[str, object]:
    values: dict[str, object] = {}
    for node in module.body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        if isinstance(node.value, ast.Constant):
            values.update({target.id: node.value.value for target in targets if isinstance(target, ast.Name)})
    return values


def judge_report(report: Mapping[str, Any]) -> OfferedTorch | None:
    """Reads a report of `pip install --dry-run --no-deps --report - torch==VERSION`; None when it holds no torch.

    The label of the version decides where there is one (`2.13.0+cpu`, `2.13.0+cu130`). Without a label the wheel's own
    metadata does: a build for an accelerator requires that accelerator's runtime packages on this machine.
    """
    for item in report.get("install", []):
        metadata = item["metadata"]
        if metadata["name"].lower() == "torch":
            is_cpu, evidence = _judge(metadata)
            source = item.get("download_info", {}).get("url", "")
            return OfferedTorch(version=metadata["version"], source=source, is_cpu=is_cpu, evidence=evidence)
    return None


def _judge(metadata: Mapping[str, Any]) -> tuple[bool, str]:
    label = _local_label(metadata["version"])
    if label is not None and label.startswith("cpu"):
        return True, f"its version is labelled +{label}"
    needed = [name for name in map(_needed_name, metadata.get("requires_dist") or []) if name is not None]
    accelerator = [name for name in needed if _ACCELERATOR_PACKAGES.match(name)]
    if accelerator:
        return False, f"it requires {', '.join(accelerator[:3])}{' and more' if len(accelerator) > 3 else ''}"
    if label is not None and re.match(r"(cu|rocm|xpu)\d*", label):
        return False, f"its version is labelled +{label}"
    return True, "it requires no GPU package"


def _local_label(version: str) -> str | None:
    try:
        return Version(version).local
    except InvalidVersion:
        return None


def _needed_name(text: str) -> str | None:
    """The package that a `Requires-Dist` line asks for on this machine; None where its marker does not apply."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return None
    return requirement.name
