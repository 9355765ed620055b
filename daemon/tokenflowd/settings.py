"""The daemon's own settings: defaults, then the settings files, then `TOKENFLOW_*` of the environment."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from tokenflow import locations
from tokenflow.errors import ConfigurationError
from tokenflowd.metrics.listen import Listen
from tokenflowd.profiles.tunables import TunableOverrides
from tokenflowd.toml_file import faults_text, read_table

_PREFIX = "TOKENFLOW_"
_HINT = "correct it, then: tfctl start"


class OnDaemonStop(StrEnum):
    """What the end of the daemon does to the engine."""

    KEEP = "keep"
    STOP = "stop"


def _check_listen(value: str) -> str:
    Listen.parse(value)
    return value


class Settings(BaseSettings):
    """Every field may stand in a settings file or, in capitals behind `TOKENFLOW_`, in the environment."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="forbid", frozen=True)

    default_profile: str = "demo-cpu"
    """What `start` takes when no profile is named."""
    on_daemon_stop: OnDaemonStop = OnDaemonStop.STOP
    """As a service: keep."""
    autostart: bool = False
    """When the daemon comes up: start what was started and not stopped, where it does not run. As a service: true."""
    start_limit_s: float = Field(default=600.0, gt=0)
    """An engine that is not ready after this is ended."""
    busy_after_s: float = Field(default=2.0, gt=0)
    """A step that takes longer than this with work present: `busy`."""
    wedged_after_s: float = Field(default=60.0, gt=0)
    """A step that takes longer than this with work present: `wedged`."""
    wedged_restart_s: float = Field(default=0.0, ge=0)
    """An engine that has been wedged for so long is ended and counts as failed; 0: never."""
    telemetry_stale_after_s: float = Field(default=3.0, gt=0)
    """No word from the scheduler for this long raises an alarm."""
    drain_s: float = Field(default=0.0, ge=0, le=86_400)
    """How long a stop lets open streams finish when it does not say."""
    restart_limit_count: int = Field(default=0, ge=0, le=1000)
    """An engine that fails after it has served is started again so often within `restart_window_s`; 0: never.
    As a service: 5."""
    restart_window_s: float = Field(default=600.0, gt=0)
    """See `restart_limit_count`."""
    restart_backoff_s: float = Field(default=1.0, ge=0)
    """Before the first restart; doubled from one to the next, 60 s at most."""
    engine_log_limit_bytes: int = Field(default=64 * 1024 * 1024, ge=64 * 1024)
    """The engine's log is turned over when it is larger."""
    flight_recorder_bytes: int = Field(default=16 * 1024 * 1024, ge=0)
    """What `tfctl bugreport` looks back on takes so much disk at most; 0: nothing is kept."""
    flight_recorder_age_s: float = Field(default=86_400.0, gt=0)
    """Older moments go."""
    stop_grace_s: float = Field(default=10.0, gt=0, le=600)
    """Between the request to end and the kill."""
    farewell_s: float = Field(default=2.0, ge=0)
    """How long an on-demand daemon waits for the client to read that its engine has stopped."""
    effect_window_s: float = Field(default=180.0, ge=0, le=3600)
    """How long after a change its effect is told, compared with as long before it; 0: never."""
    socket_group: str | None = None
    """A group whose members may use the control socket (mode 0660); without one it is the owner's alone (0600)."""
    operator_group: str = "tokenflow-operator"
    """Whose members may start, stop, tune and pause; others who may connect may look only. Empty: no group may."""
    admin_group: str = "tokenflow-admin"
    """Whose members may also end the daemon. Root and the daemon's own user are admins in any case."""
    metrics_listen: Annotated[str, AfterValidator(_check_listen)] = "127.0.0.1:9464"
    """Where Prometheus may scrape `/metrics`; port 0 takes a free one, empty is off."""
    engine_command: list[str] = []
    """Runs this in SGLang's place, with SGLang's arguments. The checks of packages and model are skipped then."""
    tunables: TunableOverrides = TunableOverrides()
    """Over the profile's."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        files = [path for path in locations.settings_files() if path.is_file()]
        return (
            init_settings,
            env_settings,
            TomlConfigSettingsSource(settings_cls, toml_file=files, deep_merge=True),
        )


_AS_SERVICE: dict[str, Any] = {
    "on_daemon_stop": OnDaemonStop.KEEP,
    "autostart": True,
    "restart_limit_count": 5,
}
NEEDS_DAEMON_RESTART = frozenset(
    {
        "flight_recorder_bytes",
        "flight_recorder_age_s",
        "socket_group",
        "operator_group",
        "admin_group",
        "metrics_listen",
        "effect_window_s",
    }
)
"""What a reload cannot change."""


def load(*, as_service: bool = False, **overrides: Any) -> Settings:
    """Raises ConfigurationError with every fault of the files and of the environment.

    `as_service`: a few defaults are those of a daemon that nobody sits in front of.
    """
    for path in locations.settings_files():
        if path.is_file():
            read_table(path, _HINT)  # a file that is no TOML is told with its name and line
    try:
        settings = Settings(**overrides)
        from_environment = TunableOverrides.model_validate(_tunables_of_environment())
        update: dict[str, Any] = {"tunables": from_environment.over(settings.tunables)}
        if as_service:
            update |= {key: value for key, value in _AS_SERVICE.items() if key not in settings.model_fields_set}
        return settings.model_copy(update=update)
    except SettingsError as error:
        raise ConfigurationError(f"{_sources()}: {error}", hint=_HINT) from error
    except ValidationError as error:
        raise ConfigurationError(faults_text(error, _sources()), hint=_HINT) from error


def tunable_variables() -> dict[str, str]:
    """By tunable, the variable of the environment that sets it: `TOKENFLOW_MODE` and so on."""
    names = {key: f"{_PREFIX}{key.upper()}" for key in TunableOverrides.model_fields}
    return {key: name for key, name in names.items() if os.environ.get(name)}


def files_of_tunables() -> dict[str, Path]:
    """By tunable, the settings file that sets it: the strongest of them. Raises ConfigurationError."""
    found: dict[str, Path] = {}
    for path in locations.settings_files():
        if path.is_file():
            table, _ = read_table(path, _HINT)
            tunables = table.get("tunables")
            found |= dict.fromkeys(tunables if isinstance(tunables, dict) else (), path)
    return found


def _tunables_of_environment() -> dict[str, str]:
    return {key: os.environ[name] for key, name in tunable_variables().items()}


def _sources() -> str:
    files: list[Path] = [path for path in locations.settings_files() if path.is_file()]
    return " or ".join([*map(str, files), f"{_PREFIX}* in the environment"])
