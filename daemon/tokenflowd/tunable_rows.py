"""The tunables as operators see them: what is in force, and where each value comes from."""

from collections.abc import Collection, Mapping
from typing import Any

from tokenflow.policy.tunables import Tunables, plain, specs
from tokenflow.tuning import Origin, TunableRow
from tokenflowd.profiles.tunables import TunableOverrides

_DEFAULTS = plain(Tunables())


def rows(
    in_force: Mapping[str, Any] | None,
    tuned_keys: Collection[str],
    profile: TunableOverrides | None,
    host: TunableOverrides,
) -> list[TunableRow]:
    """One a tunable, in the order of the contract. `in_force` None: no engine says, so values are null."""
    return [
        TunableRow(
            key=spec.key,
            value=None if in_force is None else in_force.get(spec.key),
            default=_DEFAULTS[spec.key],
            minimum=spec.minimum,
            maximum=spec.maximum,
            choices=list(spec.choices),
            origin=None if in_force is None else _origin(spec.key, tuned_keys, profile, host),
            text=spec.text,
        )
        for spec in specs()
    ]


def _origin(key: str, tuned_keys: Collection[str], profile: TunableOverrides | None, host: TunableOverrides) -> Origin:
    if key in tuned_keys:
        return Origin.TUNED
    if getattr(host, key) is not None:
        return Origin.HOST
    return Origin.DEFAULT if profile is None or getattr(profile, key) is None else Origin.PROFILE
