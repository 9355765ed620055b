"""Finding profiles by name. A later folder hides an earlier one's profile of the same name."""

import re
from dataclasses import dataclass
from pathlib import Path

from tokenflow import locations
from tokenflow.errors import ConfigurationError, ProfileNotFoundError
from tokenflowd.profiles.schema import NAME_PATTERN, Profile
from tokenflowd.toml_file import read_model


@dataclass(frozen=True, slots=True)
class ProfileFile:
    name: str
    origin: str  # "built-in", "host" or "user"
    path: Path


def find_all() -> dict[str, ProfileFile]:
    """Every profile by name, unread: a broken one must not hide the others."""
    found: dict[str, ProfileFile] = {}
    for origin, folder in locations.profile_folders():
        if folder.is_dir():
            for path in sorted(folder.glob("*.toml")):
                found[path.stem] = ProfileFile(path.stem, origin, path)
    return dict(sorted(found.items()))


def load(name: str) -> Profile:
    """Raises ProfileNotFoundError, which lists what exists, or ConfigurationError with every fault of the file."""
    files = find_all()
    file = files.get(name) if re.match(NAME_PATTERN, name) else None
    if file is None:
        existing = ", ".join(files) or "none"
        raise ProfileNotFoundError(
            f"there is no profile named {name!r}; there are: {existing}",
            hint="see them: tfctl profile list" if files else "make one: tfctl profile create NAME",
            field="profile",
        )
    hint = f"correct the file, then: tfctl start {name}"
    profile = read_model(file.path, Profile, hint)
    if profile.name != name:
        raise ConfigurationError(
            f"{file.path}: name: is {profile.name!r}, but the file is called {file.path.name}", hint=hint, field="name"
        )
    return profile
