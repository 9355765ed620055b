"""The keys of SGLang's HTTP side: from files, never on a command line, and kept out of what SGLang tells of itself.

In an engine of ours SGLang always has an admin key: one that nobody knows, unless the operator names a file. It then
answers 401 to its admin routes (flush, abort, pause, weights, profiler) for whoever lacks it.
"""

import logging
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenflow.link import LINK_ENV

API_KEY_FILE_ENV = "TOKENFLOW_API_KEY_FILE"
ADMIN_KEY_FILE_ENV = "TOKENFLOW_ADMIN_KEY_FILE"
REDACTED = "<redacted>"
_NAMES = frozenset({"api_key", "admin_api_key"})
logger = logging.getLogger(__name__)


class KeyProblem(SystemExit):
    """The engine cannot be given the key that it was told to have: better none than an open one."""


def find(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """SGLang's options and their keys, for these arguments. Raises KeyProblem.

    None beside what rules keys out: SGLang checks them in its one HTTP process only, and not on its gRPC port. An admin
    key that the arguments bring themselves is left alone.
    """
    named = [argument.partition("=")[0] for argument in arguments]
    unchecked = _unchecked(arguments)
    keys: dict[str, str] = {}
    for option, variable in (("--api-key", API_KEY_FILE_ENV), ("--admin-api-key", ADMIN_KEY_FILE_ENV)):
        path = environment.get(variable, "")
        if not path or option in named:
            continue
        if unchecked is not None:
            raise KeyProblem(f"tokenflow: SGLang does not check keys with {unchecked}; start it without that option")
        keys[option] = _read(Path(path))
    if environment.get(LINK_ENV) and "--admin-api-key" not in (*named, *keys) and unchecked is None:
        keys["--admin-api-key"] = secrets.token_urlsafe(32)
    return keys


def _unchecked(arguments: Sequence[str]) -> str | None:
    """The option because of which SGLang would not check keys."""
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--grpc-port":
            return name
        if name == "--tokenizer-worker-num":
            value = value if equals else "".join(arguments[position + 1 : position + 2])
            if value != "1":
                return name
    return None


def _read(path: Path) -> str:
    try:
        key = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise KeyProblem(f"tokenflow: the key cannot be read from {path}: {error}") from error
    if not key or len(key.split()) != 1:
        raise KeyProblem(f"tokenflow: {path} does not hold one key")
    return key


def hide() -> None:
    """From now on SGLang leaves keys out where it tells its configuration: in its log, in /server_info, in dumps.

    It does so with the secrets of its watermarks already. Raises KeyProblem where this SGLang does it another way.
    """
    try:
        from sglang.srt.sampling.watermarking import core

        core.WATERMARK_SECRET_FIELD_NAMES = core.WATERMARK_SECRET_FIELD_NAMES | _NAMES
        told = core.redact_watermark_secrets(dict.fromkeys(_NAMES, "secret"))
    except (ImportError, AttributeError, TypeError) as error:
        raise KeyProblem(f"tokenflow: this SGLang cannot be kept from telling its keys: {error}") from error
    if "secret" in told.values():
        raise KeyProblem("tokenflow: this SGLang cannot be kept from telling its keys")


def forget_command(server_args: Any, keys: Mapping[str, str]) -> None:
    """SGLang remembers the arguments that it was given, to tell them too."""
    command = server_args.launch_command or ""
    for key in keys.values():
        command = command.replace(key, REDACTED)
    server_args._launch_command = command
