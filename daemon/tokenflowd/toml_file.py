"""Reading a TOML file into a pydantic model, with every fault of the file told at once, by line."""

import math
import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tokenflow.errors import ConfigurationError

ModelT = TypeVar("ModelT", bound=BaseModel)
_HEADER = re.compile(r"^\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
_ITEM_HEADER = re.compile(r"^\s*\[\[([^\[\]]+)\]\]\s*(?:#.*)?$")  # of an array of tables


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


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a file. `line` None: it cannot be said where; `key` empty: the file as a whole."""

    line: int | None
    key: str
    message: str

    def text(self, source: str) -> str:
        """`SOURCE:LINE: key: what is wrong`"""
        place = source if self.line is None else f"{source}:{self.line}"
        return f"{place}: {self.key or 'file'}: {self.message}"


def find_faults(error: ValidationError, text: str = "") -> list[Fault]:
    """In the order of the file; what has no line comes last."""
    found = []
    for fault in error.errors(include_url=False):
        keys = [str(part) for part in fault["loc"]]
        found.append(Fault(find_line(text, keys), ".".join(keys), _in_plain_words(fault)))
    return sorted(found, key=lambda fault: math.inf if fault.line is None else fault.line)


def faults_text(error: ValidationError, source: str, text: str = "") -> str:
    """One line a fault (`Fault.text`), in the order of the file; what has no line comes last."""
    return "\n".join(fault.text(source) for fault in find_faults(error, text))


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
    items: Counter[str] = Counter()
    for number, line in enumerate(text.splitlines(), start=1):
        header, item = _HEADER.match(line), _ITEM_HEADER.match(line)
        if item is not None:
            table = path = [*_split_key(item.group(1)), str(items[item.group(1)])]
            items[item.group(1)] += 1
        elif header is not None:
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
