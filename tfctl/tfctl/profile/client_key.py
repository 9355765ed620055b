"""The key that clients of a profile's engine must bring."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenflow.errors import ConfigurationError, PermissionDeniedError, UsageError

_CREDENTIAL_PREFIX = "credential:"  # as in `tokenflowd.profiles.schema`, which takes pydantic along
_BY_VARIABLE = "with the key in a variable: tfctl profile measure --api-key-env NAME"


def client_key(engine: Mapping[str, Any], variable: str | None) -> str | None:
    """From the environment's `variable` where one is named, else from the file that `[engine]` names; None: no key.

    Raises UsageError for a variable that is not set, PermissionDeniedError for a key that is not ours to read,
    ConfigurationError for a file that holds none.
    """
    if variable is not None:
        if not os.environ.get(variable):
            raise UsageError(f"the variable {variable} is not set", hint=f"export {variable}=...", field="api-key-env")
        return os.environ[variable]
    named = engine.get("api_key_file")
    if named is None:
        return None
    if named.startswith(_CREDENTIAL_PREFIX):
        raise PermissionDeniedError(
            f"the engine wants a key, and only the daemon can read its {named.replace(':', ' ')}", hint=_BY_VARIABLE
        )
    return _read(Path(named))


def _read(path: Path) -> str:
    try:
        key = path.read_text(encoding="utf-8").strip()
    except PermissionError as error:
        raise PermissionDeniedError(
            f"the engine wants a key, and {path} cannot be read: {error.strerror}", hint=f"as root, or {_BY_VARIABLE}"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"the engine wants a key, and {path} cannot be read: {error}", hint=f"ls -l {path}; or {_BY_VARIABLE}"
        ) from error
    if not key:
        raise ConfigurationError(f"the engine wants a key, and {path} holds none", hint=f"write one into it: {path}")
    return key
