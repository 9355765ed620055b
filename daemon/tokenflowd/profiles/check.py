"""`python -m tokenflowd.profiles.check`: prints a JSON object with the path of each invalid profile and its faults."""

import json

from tokenflow.errors import ConfigurationError
from tokenflowd.profiles.store import find_all, load


def faults() -> dict[str, str]:
    """Path and faults of every profile that a start would refuse; one line a fault."""
    found: dict[str, str] = {}
    for name, file in find_all().items():
        try:
            load(name)
        except ConfigurationError as error:
            found[str(file.path)] = error.message
    return found


if __name__ == "__main__":
    print(json.dumps(faults()))
