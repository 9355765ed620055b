"""What two profiles differ in, and when an engine would work with the new values."""

from typing import Any

from tfctl.documents import ProfileChange
from tokenflow.policy.tunables import Tunables, plain
from tokenflow.tuning import Applies

_IRRELEVANT = ("name", "description")
_LATER_TUNABLES = ("default_rate_tok_s",)  # for streams that begin afterwards


def find_changes(old: dict[str, Any], new: dict[str, Any]) -> list[ProfileChange]:
    """From contents with every default filled in. Tunables that are not set are at the policy's default."""
    before, after = _flat(_completed(old)), _flat(_completed(new))
    keys = [*before, *(key for key in after if key not in before)]
    return [
        ProfileChange(key=key, old=before.get(key), new=after.get(key), applies=_applies(key))
        for key in keys
        if before.get(key) != after.get(key) and key not in _IRRELEVANT
    ]


def _completed(profile: dict[str, Any]) -> dict[str, Any]:
    told = {key: value for key, value in profile["tunables"].items() if value is not None}
    return profile | {"tunables": plain(Tunables()) | told}


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys; a list is one value."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            found[f"{prefix}{key}"] = value
    return found


def _applies(key: str) -> Applies:
    section, _, rest = key.partition(".")
    if section != "tunables":
        return Applies.RESTART
    return Applies.DRAIN if rest in _LATER_TUNABLES else Applies.LIVE
