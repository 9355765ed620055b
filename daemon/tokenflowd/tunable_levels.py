"""The levels that a tunable's value may come from, above the profile: settings files, environment, persisted."""

from typing import Any

from pydantic import ValidationError

from tokenflow.errors import ConfigurationError
from tokenflow.policy.tunables import Tunables, plain
from tokenflow.tuning import Origin
from tokenflowd import settings
from tokenflowd.profiles.schema import Profile
from tokenflowd.profiles.tunables import TunableOverrides
from tokenflowd.tuned_file import TunedFile

_DEFAULTS = plain(Tunables())


def _set_in(level: TunableOverrides) -> dict[str, Any]:
    return level.model_dump(mode="json", exclude_none=True)


class TunableLevels:
    """`host` is what settings files and environment say together."""

    def __init__(self, host: TunableOverrides, tuned: TunedFile) -> None:
        self.host = host
        self.tuned = tuned
        self.tuned_now: dict[str, Any] = {}
        """What was tuned in an engine that has failed since: it is in force again in the one that takes its place."""
        self._variables = settings.tunable_variables()
        self._files = settings.files_of_tunables()

    def persisted(self) -> dict[str, Any]:
        """By key. Of a file that is broken nothing: the next start says what is wrong with it."""
        try:
            return _set_in(self.tuned.load())
        except ConfigurationError:
            return {}

    def above_profile(self, profile: Profile | None) -> TunableOverrides:
        """What the next engine is told beside its profile.

        Raises ConfigurationError where the levels do not fit together, and for a `tuned.toml` that cannot be read.
        """
        persisted = self.tuned.load()
        try:
            merged = TunableOverrides.model_validate(self.tuned_now).over(persisted.over(self.host))
            merged.over(profile.tunables if profile else TunableOverrides()).check_with_defaults()
        except ValueError as error:  # pydantic's ValidationError is one
            name = profile.name if profile else "the profile"
            found = str(error.errors()[0]["msg"]) if isinstance(error, ValidationError) else str(error)
            raise ConfigurationError(
                "the tunables of the profile, of the host and those that were persisted do not fit together: "
                + found.removeprefix("Value error, "),
                hint=f"correct [tunables] of {name} or of tokenflow.toml, or forget those persisted: "
                "tfctl tune --reset; then: tfctl start",
            ) from error
        return merged

    def untuned(self, profile: Profile | None) -> dict[str, Any]:
        """Every key's value as profile and host have it, whether or not they fit together: the host's may have changed
        under an engine that runs."""
        below = profile.tunables if profile else TunableOverrides()
        return _DEFAULTS | _set_in(below) | _set_in(self.host)

    def origin(
        self, key: str, profile: Profile | None, *, is_persisted: bool, is_tuned: bool
    ) -> tuple[Origin, str | None]:
        """Where a value that is in force comes from, and the file or variable of it. `is_persisted`: it is the one that
        was persisted; `is_tuned`: it is another than at the engine's start."""
        if is_persisted:
            return Origin.PERSISTED, str(self.tuned.path)
        if is_tuned:
            return Origin.TUNED, None
        if key in self._variables:
            return Origin.ENVIRONMENT, self._variables[key]
        if getattr(self.host, key) is not None:
            return Origin.FILE, str(self._files[key]) if key in self._files else None
        if profile is not None and getattr(profile.tunables, key) is not None:
            return Origin.PROFILE, profile.name
        return Origin.DEFAULT, None
