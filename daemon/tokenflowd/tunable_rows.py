"""The tunables as operators see them: what is in force, and where each value comes from."""

from collections.abc import Collection, Mapping
from typing import Any

from tokenflow.policy.tunables import Tunables, plain, specs
from tokenflow.tuning import Applies, TunableRow
from tokenflowd.profiles.schema import Profile
from tokenflowd.tunable_levels import TunableLevels

_DEFAULTS = plain(Tunables())
_APPLIES = {"default_rate_tok_s": Applies.DRAIN}  # all others at once


def rows(
    in_force: Mapping[str, Any] | None, tuned_keys: Collection[str], profile: Profile | None, levels: TunableLevels
) -> list[TunableRow]:
    """One a tunable, in the order of the contract. `in_force` None: no engine says, so values are null."""
    persisted = levels.persisted()
    found = []
    for spec in specs():
        row = TunableRow(
            key=spec.key,
            value=None,
            default=_DEFAULTS[spec.key],
            minimum=spec.minimum,
            maximum=spec.maximum,
            choices=list(spec.choices),
            origin=None,
            text=spec.text,
            persisted=persisted.get(spec.key),
            applies=applies(spec.key),
        )
        if in_force is not None:
            row.value = in_force.get(spec.key)
            is_persisted = row.persisted is not None and row.persisted == row.value
            row.origin, row.source = levels.origin(
                spec.key, profile, is_persisted=is_persisted, is_tuned=spec.key in {*tuned_keys, *levels.tuned_now}
            )
        found.append(row)
    return found


def applies(key: str) -> Applies:
    """When a change of a tunable is in force."""
    return _APPLIES.get(key, Applies.LIVE)
