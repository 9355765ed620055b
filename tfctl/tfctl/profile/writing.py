"""Writing profile files: edited copies that keep comments, whole or not at all."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenflow.errors import ConfigurationError, ConflictError, HostError, OperationError, UsageError
from tokenflow.locations import new_profile_folders

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(name: str) -> str:
    """Raises UsageError."""
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name!r} is no name of a profile: letters, digits, '.', '_' and '-', at most 64",
            hint="tfctl profile create my-profile",
            field="name",
        )
    return name


def parse(text: str) -> "TOMLDocument":
    """For editing. Raises HostError where tomlkit is missing."""
    try:
        import tomlkit
    except ImportError as error:
        raise HostError(
            "tomlkit is not installed here", hint="pip install 'tokenflow-serving[daemon]', or copy the file by hand"
        ) from error
    return tomlkit.parse(text)


def set_values(document: "TOMLDocument", values: Mapping[str, Any]) -> str:
    """The text with these values in place; keys are dotted: `model.path`. A value None is taken out."""
    for key, value in values.items():
        *tables, last = key.split(".")
        place: Any = document
        for table in tables:
            place = place.setdefault(table, {})
        if value is not None:
            place[last] = value
        else:
            place.pop(last, None)
    return document.as_string()


def write_profile(name: str, text: str, *, is_replacing: bool) -> tuple[str, Path]:
    """(origin, path) of the file, in the first folder that takes it.

    Raises ConflictError where it exists and may not be replaced, ConfigurationError where no folder can be written to.
    """
    problems = []
    for origin, folder in new_profile_folders():
        path = folder / f"{name}.toml"
        if path.exists() and not is_replacing:
            raise ConflictError(f"{path} exists", hint=f"replace it: tfctl profile create {name} --force ...")
        try:
            replace_file(path, text)
        except OperationError as error:
            problems.append(error.message)
        else:
            return origin, path
    raise ConfigurationError("; ".join(problems), hint="give access to one of these folders, or set XDG_CONFIG_HOME")


def replace_file(path: Path, text: str) -> None:
    """Raises OperationError, and leaves what was there."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise OperationError(f"cannot write {path}: {error.strerror}", hint=f"ls -ld {path.parent}") from error
