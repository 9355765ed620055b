"""Reading a TOML file into a pydantic model, with every fault of the file told at once, by line."""

import math
import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tokenflow.errors import ConfigurationError

ModelT = TypeVar("ModelT", bound=BaseModel)
_HEADER = re.compile(r"^\s*\[([^\[\]]+)\]\s*(?:#.*)?$")


def read_table(path: Path, hint: str) -> tuple[dict[str, Any], str]:
    """The file's table and its text. Raises ConfigurationError when it cannot be read or is no TOML."""
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text), text
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text", hint=hint) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}", hint=hint) from error


def read_model(path: Path, kind: type[ModelT], hint: str) -> ModelT:
    """Raises ConfigurationError with one line for each fault."""
    table, text = read_table(path, hint)
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        raise ConfigurationError(faults_text(error, str(path), text), hint=hint) from error


def faults_text(error: ValidationError, source: str, text: str = "") -> str:
    """`SOURCE:LINE: key: what is wrong`, one line a fault, in the order of the file; what has no line comes last."""
    placed = []
    for fault in error.errors(include_url=False):
        line = find_line(text, [str(part) for part in fault["loc"]])
        placed.append((math.inf if line is None else line, _fault_line(fault, source, line)))
    return "\n".join(text for _, text in sorted(placed, key=lambda pair: pair[0]))


def _fault_line(fault: ErrorDetails, source: str, line: int | None) -> str:
    keys = [str(part) for part in fault["loc"]]
    place = source if line is None else f"{source}:{line}"
    return f"{place}: {'.'.join(keys) or 'file'}: {_in_plain_words(fault)}"


def _in_plain_words(fault: ErrorDetails) -> str:
    match fault["type"]:
        case "extra_forbidden":
            return "unknown key"
        case "missing":
            return "is missing"
        case "value_error":
            return str(fault["msg"]).removeprefix("Value error, ")
        case _:
            return f"{str(fault['msg'])[:1].lower()}{str(fault['msg'])[1:]} (it is {fault['input']!r:.60})"


def find_line(text: str, keys: list[str]) -> int | None:
    """Where a key stands in a TOML text; else the nearest enclosing table; else None."""
    best: tuple[int, int] | None = None  # (how many keys match, line)
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        if header is not None:
            table = _split_key(header.group(1))
            path = table
        elif "=" in line and not line.lstrip().startswith("#"):
            path = table + _split_key(line.partition("=")[0])
        else:
            continue
        depth = len(path)
        if keys[:depth] == path and (best is None or depth > best[0]):
            best = (depth, number)
    return None if best is None else best[1]


def _split_key(key: str) -> list[str]:
    return [part.strip().strip("\"'") for part in key.split(".")]
