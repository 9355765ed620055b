"""The profile files as they lie on the disk. What they mean is checked by the daemon that runs them."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from tfctl.documents import ProfileSummary
from tokenflow.errors import ConfigurationError, ProfileNotFoundError
from tokenflow.locations import profile_folders

_CHECK_LIMIT_S = 10.0


def find_profiles() -> list[ProfileSummary]:
    """One entry a name, sorted; a file in a later folder hides one of the same name."""
    found: dict[str, ProfileSummary] = {}
    for origin, folder in profile_folders():
        for path in sorted(folder.glob("*.toml")):
            found[path.stem] = _summary(path, origin)
    return [found[name] for name in sorted(found)]


def read_profile(name: str) -> tuple[ProfileSummary, str, dict[str, Any]]:
    """The file, its text and its contents. Raises ProfileNotFoundError, or ConfigurationError if it is broken."""
    found = {profile.name: profile for profile in find_profiles()}
    summary = found.get(name)
    if summary is None:
        names = ", ".join(found) or "none at all"
        raise ProfileNotFoundError(
            f"no profile is called '{name}'; there are: {names}", hint="see them: tfctl profile list"
        )
    if summary.error is not None:
        raise ConfigurationError(f"{summary.path}: {summary.error}", hint=f"correct it: $EDITOR {summary.path}")
    text = Path(summary.path).read_text(encoding="utf-8")
    return summary, text, tomllib.loads(text)


def find_faults() -> dict[str, str]:
    """Path and faults of each invalid profile, as the installed daemon sees them; nothing where it is not installed.

    The daemon's packages stay out of this process: they may be missing, and they load slowly.
    """
    command = [sys.executable, "-m", "tokenflowd.profiles.check"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=_CHECK_LIMIT_S)
        return msgspec.json.decode(done.stdout, type=dict[str, str])
    except (subprocess.SubprocessError, OSError, msgspec.DecodeError):
        return {}


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
