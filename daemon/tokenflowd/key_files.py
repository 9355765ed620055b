"""The files that the engine's keys are in: found, and refused where others could read them. No key is read here."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from tokenflow.errors import ConfigurationError
from tokenflowd.profiles.schema import CREDENTIAL_PREFIX, EngineSection

_CREDENTIALS_ENV = "CREDENTIALS_DIRECTORY"  # systemd.exec(5), LoadCredential=
_VARIABLES = {"api_key_file": "TOKENFLOW_API_KEY_FILE", "admin_key_file": "TOKENFLOW_ADMIN_KEY_FILE"}


def variables(engine: EngineSection, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """For the engine's environment: where its keys are (`tokenflow.sglang.keys`). Raises ConfigurationError."""
    wanted = {name: getattr(engine, name) for name in _VARIABLES}
    return {
        _VARIABLES[name]: str(path_of(name, value, environment)) for name, value in wanted.items() if value is not None
    }


def path_of(name: str, value: str, environment: Mapping[str, str]) -> Path:
    """Where the key is that the profile's `name` means by `value`. Raises ConfigurationError."""
    if not value.startswith(CREDENTIAL_PREFIX):
        return Path(value)
    credential = value.removeprefix(CREDENTIAL_PREFIX)
    folder = environment.get(_CREDENTIALS_ENV, "")
    if not folder:
        raise ConfigurationError(
            f"{name}: there are no systemd credentials here",
            hint=f"systemctl edit tokenflowd: [Service] LoadCredential={credential}:/etc/tokenflow/{credential}",
            field=name,
        )
    return Path(folder) / credential


def check(engine: EngineSection, environment: Mapping[str, str] = os.environ) -> None:
    """Raises ConfigurationError for a file that is not there, that others may read, or that holds nothing."""
    for name in _VARIABLES:
        value = getattr(engine, name)
        if value is not None:
            _check(name, path_of(name, value, environment))


def _check(name: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            is_empty = not file.read(4096).strip()
    except OSError as error:
        raise ConfigurationError(
            f"{name}: cannot read {path}: {error.strerror}",
            hint=f"install -m 0600 /dev/stdin {path}, then the key and Ctrl-D",
            field=name,
        ) from error
    if not stat.S_ISREG(info.st_mode) or is_empty:
        raise ConfigurationError(f"{name}: {path} holds no key", hint=f"write one into it: {path}", field=name)
    if stat.S_IMODE(info.st_mode) & 0o077:
        mode = stat.S_IMODE(info.st_mode)
        raise ConfigurationError(
            f"{name}: {path} may be read by others (mode {mode:04o})", hint=f"chmod 600 {path}", field=name
        )
