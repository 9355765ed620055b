"""The profile files as they lie on the disk. What they mean is asked of the daemon's own checker."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from tfctl.documents import CheckedProfile, ProfileSummary
from tokenflow.errors import ConfigurationError, HostError, ProfileNotFoundError
from tokenflow.locations import profile_folders

_CHECK_LIMIT_S = 30.0


def find_profiles() -> list[ProfileSummary]:
    """One entry a name, sorted; a file in a later folder hides one of the same name."""
    found: dict[str, ProfileSummary] = {}
    for origin, folder in profile_folders():
        for path in sorted(folder.glob("*.toml")):
            found[path.stem] = _summary(path, origin)
    return [found[name] for name in sorted(found)]


def find_profile(name: str) -> ProfileSummary:
    """Raises ProfileNotFoundError."""
    found = {profile.name: profile for profile in find_profiles()}
    summary = found.get(name)
    if summary is None:
        names = ", ".join(found) or "none at all"
        raise ProfileNotFoundError(
            f"no profile is called '{name}'; there are: {names}", hint="see them: tfctl profile list"
        )
    return summary


def read_profile(name: str) -> tuple[ProfileSummary, str, dict[str, Any]]:
    """The file, its text and its contents. Raises ProfileNotFoundError, or ConfigurationError if it is broken."""
    summary = find_profile(name)
    if summary.error is not None:
        raise ConfigurationError(f"{summary.path}: {summary.error}", hint=f"correct it: $EDITOR {summary.path}")
    text = Path(summary.path).read_text(encoding="utf-8")
    return summary, text, tomllib.loads(text)


def check_profiles(names: list[str]) -> list[CheckedProfile]:
    """Names or paths, or all; as the installed daemon sees them. Raises HostError where it is not installed.

    The daemon's packages stay out of this process: they may be missing, and they load slowly.
    """
    command = [sys.executable, "-m", "tokenflowd.profiles.check", *names]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=_CHECK_LIMIT_S)
        return msgspec.json.decode(done.stdout, type=list[CheckedProfile])
    except (subprocess.SubprocessError, OSError, msgspec.DecodeError) as error:
        raise HostError(
            f"profiles cannot be checked here: {error}",
            hint="the daemon's packages are needed: pip install 'tokenflow-serving[daemon]'",
        ) from error


def valid_contents(name: str) -> dict[str, Any]:
    """A profile with every default filled in. Raises ProfileNotFoundError, or ConfigurationError with every fault."""
    summary = find_profile(name)
    (checked,) = check_profiles([name])
    if checked.faults or checked.profile is None:
        raise ConfigurationError(
            "\n".join(fault.text(summary.path) for fault in checked.faults),
            hint=f"correct the file, then: tfctl profile validate {name}",
        )
    return checked.profile


def find_faults() -> dict[str, str]:
    """Path and faults of each invalid profile, one line a fault; nothing where they cannot be checked."""
    try:
        checked = check_profiles([])
    except HostError:
        return {}
    return {
        profile.path: "\n".join(fault.text(profile.path) for fault in profile.faults)
        for profile in checked
        if profile.faults
    }


def _summary(path: Path, origin: str) -> ProfileSummary:
    summary = ProfileSummary(name=path.stem, origin=origin, path=str(path))
    try:
        description = tomllib.loads(path.read_text(encoding="utf-8")).get("description")
    except OSError as error:
        summary.error = error.strerror or type(error).__name__
    except ValueError as error:  # broken TOML (with its line), or no UTF-8
        summary.error = str(error)
    else:
        summary.description = description if isinstance(description, str) else None
    return summary
