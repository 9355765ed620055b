"""Prompts from a file: one a line, as text or as JSON objects."""

import random
from pathlib import Path

import msgspec

from tokenflow.errors import ConfigurationError, UsageError

_HINT = 'use a text file with one prompt a line, or JSON lines such as {"prompt": "..."}'


class _Line(msgspec.Struct):
    prompt: str


def read_prompts(path: Path) -> tuple[str, ...]:
    """`.jsonl` files hold an object with `prompt` a line, others a prompt a line; empty lines are skipped.

    Raises UsageError for a file that cannot be opened, ConfigurationError for contents that make no sense.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not a text file", hint=_HINT, field="prompts") from None
    except OSError as error:
        raise UsageError(f"cannot read the prompts {path}: {error.strerror}", hint=_HINT, field="prompts") from None
    is_json = path.suffix in (".jsonl", ".ndjson")
    prompts: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            prompts.append(msgspec.json.decode(line, type=_Line).prompt if is_json else line.strip())
        except msgspec.DecodeError as error:
            raise ConfigurationError(f"{path}, line {number}: {error}", hint=_HINT, field="prompts") from None
    if not prompts:
        raise ConfigurationError(f"{path} holds no prompt", hint=_HINT, field="prompts")
    return tuple(prompts)


def deal(prompts: tuple[str, ...], count: int, rng: random.Random) -> list[str]:
    """`count` of them in random order; none comes again before all have been used."""
    dealt: list[str] = []
    while len(dealt) < count:
        dealt.extend(rng.sample(prompts, min(len(prompts), count - len(dealt))))
    return dealt
