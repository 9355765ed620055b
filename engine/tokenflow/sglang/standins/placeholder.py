"""What the stand-ins answer with: objects that may be named, combined and decorated with, but not run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, Self, TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


class StandInError(NotImplementedError):
    """A stand-in was asked to do the work of the package it stands in for."""


@dataclass(frozen=True, slots=True)
class StandIn:
    """One package that is stood in for.

    `modules` lists every importable module with its fixed attributes; a module that is not listed cannot be
    imported, as if the package were an older release without it. `fallback(module, name)` makes the other
    attributes and raises AttributeError where callers have a way out for a name that is missing.
    """

    package: str
    modules: Mapping[str, Mapping[str, object]]
    fallback: Callable[[str, str], object]


class Placeholder:
    """A name without a value: its attributes are placeholders, it decorates, and it goes into annotations."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__qualname__ = name

    def __getattr__(self, name: str) -> "Placeholder":
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self.__name__}.{name}")

    def __call__(self, *arguments: object, **options: object) -> object:
        """As a decorator it hands the function back, with or without options before it."""
        if len(arguments) == 1 and not options and callable(arguments[0]):
            return arguments[0]
        return keep_function

    def __getitem__(self, key: object) -> Self:
        return self

    def __or__(self, other: object) -> object:
        return other

    __ror__ = __or__

    def __bool__(self) -> bool:
        return False  # `if feature:` must take the way without the package

    def __repr__(self) -> str:
        return f"<stand-in {self.__name__}>"


def keep_function(function: Function) -> Function:
    """The decorator that changes nothing."""
    return function


def refuse(name: str) -> Callable[..., NoReturn]:
    """A function called `name` that raises StandInError."""
    package = name.partition(".")[0]

    def refused(*_arguments: object, **_options: object) -> NoReturn:
        raise StandInError(f"{name} was called, but {package} is not installed on this machine")

    refused.__name__ = refused.__qualname__ = name.rpartition(".")[2]
    return refused
