"""Stand-in for triton: kernel definitions import, launching a kernel raises StandInError.

Kernels are defined at module level all over SGLang, so the decorators and `triton.language` names must exist.
`triton.backends.backends` is an empty dict, because torch asks `"cpu" in triton.backends.backends` to learn what
triton can compile for: the honest answer is nothing.
"""

from collections.abc import Callable
from typing import Any, NoReturn

from tokenflow.sglang.standins.placeholder import Placeholder, StandIn, StandInError, keep_function


class Kernel:
    """What `@triton.jit` leaves of a function: it can be passed on and indexed by a grid, but not launched."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.fn = function
        self.__name__ = getattr(function, "__name__", "kernel")
        self.__doc__ = function.__doc__

    def __getitem__(self, grid: object) -> Callable[..., NoReturn]:
        return self._launch

    def __call__(self, *arguments: object, **options: object) -> NoReturn:
        self._launch(*arguments, **options)

    def _launch(self, *_arguments: object, **_options: object) -> NoReturn:
        raise StandInError(f"the kernel {self.__name__} was launched, but triton is not installed on this machine")


class Config:
    """One set of launch parameters of `@triton.autotune`; kept, never used."""

    def __init__(self, kwargs: dict[str, Any] | None = None, num_warps: int = 4, num_stages: int = 2, **_: Any) -> None:
        self.kwargs = kwargs or {}
        self.num_warps = num_warps
        self.num_stages = num_stages


def jit(function: Callable[..., object] | None = None, **_options: object) -> Kernel | type[Kernel]:
    """`@triton.jit` with or without options."""
    return Kernel if function is None else Kernel(function)


def decorate(*_arguments: object, **_options: object) -> Callable[..., object]:
    """`@triton.autotune(...)` and `@triton.heuristics(...)`: the kernel below stays as it is."""
    return keep_function


def cdiv(dividend: int, divisor: int) -> int:
    """Division rounded up. Host code sizes buffers with it, so it must be right."""
    return -(dividend // -divisor)


def next_power_of_2(number: int) -> int:
    """The least power of two that is not below `number`. Host code sizes buffers with it, so it must be right."""
    return 1 << (number - 1).bit_length() if number > 0 else 1


def _fallback(module: str, name: str) -> object:
    if name[:1].isupper() or name in ("constexpr", "tensor", "dtype", "pointer_type"):
        return type(name, (), {"__module__": module, "__init__": lambda self, *_a, **_o: None})
    return Placeholder(f"{module}.{name}")


STAND_IN = StandIn(
    package="triton",
    modules={
        "triton": {
            "__version__": "0.0.0",
            "jit": jit,
            "autotune": decorate,
            "heuristics": decorate,
            "Config": Config,
            "cdiv": cdiv,
            "next_power_of_2": next_power_of_2,
        },
        "triton.backends": {"backends": {}},
        "triton.language": {},
        "triton.language.extra": {},
    },
    fallback=_fallback,
)
