"""Every value that may be tuned while the engine serves: key, default, range and meaning (docs/tuning.md)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Annotated, Any, get_type_hints

from tokenflow.policy.states import Mode, Variant

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class Restore(StrEnum):
    """How a paused stream whose KV is not on the device comes back."""

    AUTO = "auto"  # whichever is cheaper now
    LOAD = "load"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why one value was refused."""

    key: str
    message: str


@dataclass(frozen=True, slots=True)
class TunableSpec:
    """One tunable as people and programs see it. `minimum` and `maximum` are None where there is a list of choices."""

    key: str
    default: Any
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Range:
    """The values that a number may take, both ends included."""

    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True)
class Tunables:
    """The values in force. Build changed ones with `check`, which knows the ranges."""

    mode: Annotated[Mode, "observe decides and changes nothing, enforce acts, off is stock"] = Mode.OBSERVE
    variant: Annotated[Variant, "which policy decides"] = Variant.TOKENFLOW
    safety_factor: Annotated[float, Range(1, 20), "factor on evict + load + schedule in the safety condition"] = 1.5
    reserve_s: Annotated[
        float, Range(0, 10), "runway that is kept in hand: a paused stream is fetched this much early"
    ] = 0.5
    surplus_s: Annotated[float, Range(0, 60), "least runway of a stream that is paused for somebody's first token"] = (
        2.0
    )
    tail_quantile: Annotated[float, Range(0.5, 0.999), "quantile of measured times that decisions are made with"] = 0.99
    default_rate_tok_s: Annotated[float, Range(0.1, 10_000), "consumption rate of a stream that names none"] = 6.0
    ttft_target_s: Annotated[float, Range(0.05, 60), "time to first token that waiting requests are ordered by"] = 1.0
    starvation_bound_s: Annotated[float, Range(1, 3600), "waiting beyond this goes first, whoever has to make room"] = (
        30.0
    )
    first_run_tokens: Annotated[
        int, Range(1, 4096), "length of a first run while others wait for their first token"
    ] = 8
    quantum_s: Annotated[float, Range(0, 30), "least length of every later run"] = 1.0
    max_swaps_per_s: Annotated[float, Range(0, 10_000), "pauses per second, those for a full KV pool not counted"] = (
        50.0
    )
    weight_ttft: Annotated[float, Range(0, 100), "worth of a second of waiting for a first token"] = 1.0
    weight_stall: Annotated[float, Range(0, 100), "worth of a second of stall"] = 3.0
    weight_throughput: Annotated[float, Range(0, 100), "worth of a second for which a slot makes nothing"] = 1.0
    min_benefit_s: Annotated[float, Range(0, 10), "a swap must gain more than this"] = 0.05
    overload_enter_ratio: Annotated[float, Range(0.5, 2), "demand over capacity above which overload begins"] = 1.0
    overload_exit_ratio: Annotated[float, Range(0.1, 2), "demand over capacity below which overload ends"] = 0.9
    write_through: Annotated[bool, "copy KV to the host while streams run"] = True
    transfer_budget_ratio: Annotated[float, Range(0, 1), "share of a step in which the link may carry writes"] = 0.8
    restore: Annotated[Restore, "how KV that left the device comes back"] = Restore.AUTO
    max_unread_ratio: Annotated[
        float, Range(0, 1), "unread share of a stream's length beyond which it is paused last"
    ] = 0.1


def specs() -> list[TunableSpec]:
    """All tunables in the order of the contract."""
    rows = []
    for key, hint in get_type_hints(Tunables, include_extras=True).items():
        default = getattr(_DEFAULTS, key)
        *ranges, text = hint.__metadata__
        choices: tuple[str, ...] = ()
        if isinstance(default, StrEnum):
            choices = tuple(str(member) for member in type(default))
        elif isinstance(default, bool):
            choices = ("true", "false")
        minimum, maximum = (ranges[0].minimum, ranges[0].maximum) if ranges else (None, None)
        rows.append(TunableSpec(key, default, minimum, maximum, choices, text))
    return rows


_DEFAULTS = Tunables()
_SPECS = {spec.key: spec for spec in specs()}


def plain(tunables: Tunables) -> dict[str, Any]:
    """Keys and values as documents and messages carry them: enums by their word."""
    values = ((field.name, getattr(tunables, field.name)) for field in fields(tunables))
    return {key: value.value if isinstance(value, StrEnum) else value for key, value in values}


def check(changes: Mapping[str, object], base: Tunables) -> tuple[Tunables, list[Problem]]:
    """`base` with all `changes` (typed, or text as typed on a command line), or `base` itself and every problem."""
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for key, given in changes.items():
        spec = _SPECS.get(key)
        if spec is None:
            problems.append(Problem(key, f"there is no tunable {key!r}"))
            continue
        parsed = _parse(spec, given)
        if isinstance(parsed, Problem):
            problems.append(parsed)
        else:
            values[key] = parsed[0]
    if problems:
        return base, problems
    changed = replace(base, **values)
    if changed.overload_exit_ratio >= changed.overload_enter_ratio:
        text = (
            f"overload_exit_ratio ({changed.overload_exit_ratio:g}) must be below "
            f"overload_enter_ratio ({changed.overload_enter_ratio:g})"
        )
        key = "overload_exit_ratio" if "overload_exit_ratio" in changes else "overload_enter_ratio"
        return base, [Problem(key, text)]
    return changed, []


def _parse(spec: TunableSpec, given: object) -> tuple[Any] | Problem:
    """The typed value in a 1-tuple (a value may itself be falsy), or why not."""
    if isinstance(spec.default, StrEnum):
        word = str(given).strip().lower()
        if word not in spec.choices:
            return Problem(spec.key, f"{spec.key} is one of {', '.join(spec.choices)}; got {given!r}")
        return (type(spec.default)(word),)
    if isinstance(spec.default, bool):
        word = str(given).strip().lower()
        if word not in _TRUE | _FALSE:
            return Problem(spec.key, f"{spec.key} is true or false; got {given!r}")
        return (word in _TRUE,)
    return _parse_number(spec, given)


def _parse_number(spec: TunableSpec, given: object) -> tuple[Any] | Problem:
    assert spec.minimum is not None
    assert spec.maximum is not None
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return Problem(spec.key, f"{spec.key} is a number; got {given!r}")
    try:
        number = float(given)
    except (ValueError, OverflowError):
        return Problem(spec.key, f"{spec.key} is a number; got {given!r}")
    if not math.isfinite(number) or not spec.minimum <= number <= spec.maximum:
        return Problem(spec.key, f"{spec.key} lies between {spec.minimum:g} and {spec.maximum:g}; got {given}")
    if isinstance(spec.default, int):
        if number != int(number):
            return Problem(spec.key, f"{spec.key} is a whole number; got {given}")
        return (int(number),)
    return (number,)
