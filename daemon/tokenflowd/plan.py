"""From a profile to the command and the environment of one engine."""

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from tokenflow.errors import ConfigurationError, UsageError
from tokenflow.link import LINK_ENV
from tokenflowd import arguments, key_files
from tokenflowd.paths import TEMPORARY_FOLDER
from tokenflowd.profiles.schema import Device, EngineSection, ModelSection, Profile
from tokenflowd.profiles.tunables import TunableOverrides
from tokenflowd.record import PlanRecord

SETTINGS_ENV = "TOKENFLOW_SETTINGS"  # read by tokenflow.sglang.settings
# The service manager's words to the daemon are not for the engine.
_NOT_INHERITED = ("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID")
_KEY_OPTIONS = {"--api-key": "api_key_file", "--admin-api-key": "admin_key_file"}
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """Everything that the start of one engine is made from."""

    profile: Profile
    extra_arguments: tuple[str, ...]
    model_path: str
    host: str
    port: int
    device: str
    served_name: str
    server_arguments: tuple[str, ...]
    is_whole: bool = True  # False: only what the arguments tell is known of the profile (`from_record`)

    @property
    def url(self) -> str:
        host = _EVERYWHERE.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{self.port}"

    @property
    def ending_signal(self) -> signal.Signals:
        """What asks SGLang's main process to end.

        On SIGTERM it looks every 5 s and lets its schedulers release GPU memory; on SIGINT it ends in half a second
        and kills them, which costs nothing where there is no GPU.
        """
        return signal.SIGINT if self.device == Device.CPU else signal.SIGTERM

    def is_for(self, profile_name: str, extra_arguments: list[str]) -> bool:
        return self.profile.name == profile_name and self.extra_arguments == tuple(extra_arguments)

    def command(self, engine_command: list[str]) -> list[str]:
        start = engine_command or [sys.executable, "-m", "tokenflow.sglang.launch"]
        return [*start, *self.server_arguments]


def to_record(plan: EnginePlan) -> PlanRecord:
    """For the engine's record; see `from_record`."""
    return PlanRecord(
        profile=plan.profile.model_dump(mode="json", exclude_unset=True),
        extra_arguments=list(plan.extra_arguments),
        model_path=plan.model_path,
        host=plan.host,
        port=plan.port,
        device=plan.device,
        served_name=plan.served_name,
        server_arguments=list(plan.server_arguments),
    )


def from_record(name: str, entry: PlanRecord) -> EnginePlan:
    """The plan of an engine that another daemon has started.

    A profile that this daemon cannot read (it may be of another version) must not cost a running engine: of such a
    one only what the arguments tell is known.
    """
    is_whole = True
    try:
        profile = Profile.model_validate(entry.profile)
    except ValidationError:
        is_whole = False
        engine = EngineSection.model_construct(device=entry.device, host=entry.host, port=entry.port)
        model = ModelSection.model_construct(path=entry.model_path, served_name=entry.served_name)
        profile = Profile.model_construct(name=name, model=model, engine=engine)
    return EnginePlan(
        profile=profile,
        extra_arguments=tuple(entry.extra_arguments),
        model_path=entry.model_path,
        host=entry.host,
        port=entry.port,
        device=entry.device,
        served_name=entry.served_name,
        server_arguments=tuple(entry.server_arguments),
        is_whole=is_whole,
    )


def make(
    profile: Profile, extra_arguments: list[str], model_path: str | None = None, port: int | None = None
) -> EnginePlan:
    """`model_path` and `port` stand in for the profile's where those are not final (`demo`, 0).

    Raises UsageError for a port that is none.
    """
    own = [
        *("--model-path", model_path or profile.model.path),
        *("--host", profile.engine.host),
        *("--port", str(profile.engine.port)),
        *("--served-model-name", profile.model.served_name),
        *("--device", profile.engine.device.value),
    ]
    _refuse_keys(profile.engine.args, extra_arguments)
    merged = arguments.merge(own, profile.engine.args, extra_arguments, [] if port is None else ["--port", str(port)])
    return EnginePlan(
        profile=profile,
        extra_arguments=tuple(extra_arguments),
        model_path=arguments.option_value(merged, "--model", "--model-path") or "",
        host=arguments.option_value(merged, "--host") or "",
        port=_port_number(arguments.option_value(merged, "--port") or ""),
        device=arguments.option_value(merged, "--device") or "",
        served_name=arguments.option_value(merged, "--served-model-name") or "",
        server_arguments=tuple(merged),
    )


def _refuse_keys(own: list[str], extra: list[str]) -> None:
    """Raises ConfigurationError or UsageError: every user of the host can read a command line."""
    for given, error in ((own, ConfigurationError), (extra, UsageError)):
        for option, setting in _KEY_OPTIONS.items():
            if any(word.partition("=")[0] == option for word in given):
                raise error(
                    f"{option}: every user of this host can read a command line",
                    hint=f'write the key into a file of mode 0600, and into the profile: [engine] {setting} = "/PATH"',
                    field="engine_args",
                )


def _port_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise UsageError(
            f"{text!r} is not a port: 0 to 65535", hint="tfctl start PROFILE -- --port 30001", field="engine_args"
        )
    return int(text)


def plugin_settings(profile: Profile, overrides: TunableOverrides) -> dict[str, Any]:
    """What the plugin is told: the profile's classes, and its tunables under the host's. What is unset is left out."""
    tunables = overrides.over(profile.tunables).model_dump(mode="json", exclude_none=True)
    settings = {key: tunables.pop(key) for key in ("mode", "variant", "default_rate_tok_s") if key in tunables}
    return settings | {
        "tunables": tunables,
        "priors": profile.performance.priors() if profile.performance else {},
        **profile.clients.model_dump(mode="json"),
        "classes": {name: section.model_dump() for name, section in profile.classes.items()},
    }


def environment(
    profile: Profile, settings: dict[str, Any], link_folder: Path, base: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """SGLang's temporary files and sockets go into the link folder, which is removed with the engine, unless the
    profile's `env` says otherwise. Compiled kernels stay: SGLang puts them into a cache folder of its own."""
    inherited = {name: value for name, value in base.items() if name not in _NOT_INHERITED}
    fixed = {
        LINK_ENV: str(link_folder),
        SETTINGS_ENV: msgspec.json.encode(settings).decode(),
        "PYTHONUNBUFFERED": "1",
    }
    temporary = {"TMPDIR": str(link_folder / TEMPORARY_FOLDER)}
    # The first one is one that nobody changes: setproctitle finds no place for a title once it has been replaced, and
    # by their titles SGLang's processes are told apart.
    return {LINK_ENV: ""} | inherited | temporary | key_files.variables(profile.engine) | profile.engine.env | fixed
