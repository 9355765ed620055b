"""Putting the engine's command line together from three layers: the daemon's own, the profile's, the operator's."""

import re
from collections.abc import Iterable

_OPTION = re.compile(r"--?[A-Za-z]")  # a negative number is a value


def split_options(arguments: list[str]) -> list[list[str]]:
    """`--a 1 2 --b --c=3` → `[[--a, 1, 2], [--b], [--c=3]]`. What precedes the first option is a group."""
    groups: list[list[str]] = []
    for argument in arguments:
        if _OPTION.match(argument) or not groups:
            groups.append([argument])
        else:
            groups[-1].append(argument)
    return groups


def option_name(group: list[str]) -> str:
    return group[0].partition("=")[0]


def merge(*layers: list[str]) -> list[str]:
    """A later layer replaces the same option of earlier ones; within a layer an option may be repeated."""
    merged: list[list[str]] = []
    for layer in layers:
        groups = split_options(layer)
        names = {option_name(group) for group in groups}
        merged = [group for group in merged if option_name(group) not in names] + groups
    return flatten(merged)


def flatten(groups: Iterable[list[str]]) -> list[str]:
    return [argument for group in groups for argument in group]


def option_value(arguments: list[str], *names: str) -> str | None:
    """The value of an option, given as `--name value` or `--name=value`; the last one counts. None when absent."""
    value = None
    for group in split_options(arguments):
        name, equals, rest = group[0].partition("=")
        if name in names:
            value = rest if equals else (group[1] if len(group) > 1 else None)
    return value
