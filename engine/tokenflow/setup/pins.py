"""The pinned package lists that ship with TokenFlow, and how the running environment compares with them."""

import importlib.metadata
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path

from packaging.requirements import Requirement


class PinList(StrEnum):
    """The lists, by their file names."""

    ENGINE_CPU = "engine-cpu.txt"
    ENGINE_CPU_NO_DEPS = "engine-cpu-no-deps.txt"  # after the other one, with --no-deps
    DEV = "dev.txt"

    @property
    def path(self) -> Path:
        return Path(__file__).parent / "requirements" / self.value


def read_pins(path: Path) -> list[Requirement]:
    """The requirements in a file of one requirement a line and `#` comments."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [Requirement(line) for line in lines if line]


def installed_version(name: str) -> str | None:
    """The version of a package in this environment, from its metadata; None when it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def unsatisfied(
    pins: Iterable[Requirement], version_of: Callable[[str], str | None] = installed_version
) -> list[Requirement]:
    """The pins that apply to this machine and that the environment does not meet.

    A local label does not matter: `torch==2.13.0` is met by `2.13.0+cpu`.
    """
    return [pin for pin in pins if (pin.marker is None or pin.marker.evaluate()) and not _is_met(pin, version_of)]


def _is_met(pin: Requirement, version_of: Callable[[str], str | None]) -> bool:
    version = version_of(pin.name)
    return version is not None and pin.specifier.contains(version, prereleases=True)
