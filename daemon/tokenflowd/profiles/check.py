"""`python -m tokenflowd.profiles.check [NAME|PATH ...]`: what is wrong with profiles, and what they say, as JSON.

One object a profile: `name`, `path`, `faults` (each with `line`, `key`, `message`) and `profile`, the contents with
every default filled in, null where there are faults. Without arguments: all that can be found by name.
"""

import json
import re
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tokenflow.errors import TokenFlowError
from tokenflowd import plan
from tokenflowd.profiles.schema import Profile
from tokenflowd.profiles.store import find_all
from tokenflowd.toml_file import Fault, find_faults, find_line

_TOML_LINE = re.compile(r"\(at line (\d+), column \d+\)")


def examine(path: Path) -> tuple[Profile | None, list[Fault]]:
    """The profile, or every fault of its file."""
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except OSError as error:
        return None, [Fault(None, "", f"cannot be read: {error.strerror}")]
    except UnicodeDecodeError:
        return None, [Fault(None, "", "is not UTF-8 text")]
    except tomllib.TOMLDecodeError as error:
        place = _TOML_LINE.search(str(error))
        return None, [Fault(int(place.group(1)) if place else None, "", f"is not valid TOML: {error}")]
    try:
        profile = Profile.model_validate(table)
    except ValidationError as error:
        return None, find_faults(error, text)
    faults = []
    if profile.name != path.stem:
        message = f"is {profile.name!r}, but the file is called {path.name}"
        faults.append(Fault(find_line(text, ["name"]), "name", message))
    try:
        plan.make(profile, [])
    except TokenFlowError as error:
        faults.append(Fault(find_line(text, ["engine", "args"]), "engine.args", error.message))
    return (None if faults else profile), faults


def report(names: list[str]) -> list[dict[str, Any]]:
    """One entry for each name or path; what there is no profile of has a fault that says so."""
    known = {name: file.path for name, file in find_all().items()}
    found = []
    for name in names or known:
        path = known.get(name) or Path(name)
        profile, faults = examine(path)
        if name not in known and not path.exists():
            faults = [Fault(None, "", "there is no profile of that name, and no such file")]
        contents = None if profile is None else profile.model_dump(mode="json")
        found.append(
            {"name": path.stem, "path": str(path), "faults": [asdict(fault) for fault in faults], "profile": contents}
        )
    return found


if __name__ == "__main__":
    print(json.dumps(report(sys.argv[1:])))
