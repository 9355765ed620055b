"""`[performance]` of a profile: what the engine can do on its machine, and how each figure came about."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import Field

from tokenflowd.profiles.section import Section

_MAX_TIME_S = 600.0
_MAX_BYTES_S = 1e13


class How(StrEnum):
    """How far a figure can be trusted."""

    MEASURED = "measured"  # on this machine, by `tfctl profile measure`
    DERIVED = "derived"  # computed from measurements of others, which `source` names
    ASSUMED = "assumed"  # taken over from another machine or a data sheet


class Figures(Section):
    """All values of one section are of one kind and one source."""

    how: How
    source: str = Field(min_length=1)


class StepSection(Figures):
    """A step's time: `fixed_s + row_s · sequences + token_s · tokens`. Tokens are the sum of all contexts for decode
    steps, the new tokens for prefill steps."""

    fixed_s: float = Field(ge=0, le=_MAX_TIME_S)
    row_s: float = Field(default=0.0, ge=0, le=_MAX_TIME_S)
    token_s: float = Field(ge=0, le=_MAX_TIME_S)
    error_ratio: float | None = Field(default=None, ge=0)
    """Mean absolute distance of the formula from the steps that it was fitted to, over their time."""


class CopySection(Figures):
    """One direction between the KV pools."""

    bytes_s: float = Field(gt=0, le=_MAX_BYTES_S)
    """With the other direction idle."""
    both_bytes_s: float | None = Field(default=None, gt=0, le=_MAX_BYTES_S)
    """While the other direction copies too."""
    fixed_s: float | None = Field(default=None, ge=0, le=_MAX_TIME_S)


class TailSection(Figures):
    """99th percentiles of service times without queueing."""

    evict_s: float | None = Field(default=None, ge=0, le=_MAX_TIME_S)
    load_s: float | None = Field(default=None, ge=0, le=_MAX_TIME_S)
    schedule_s: float | None = Field(default=None, ge=0, le=_MAX_TIME_S)


class CapacityPoint(Section):
    """What so many streams of such a context make per second, all together, while nothing prefills."""

    streams: int = Field(ge=1)
    context_tokens: int = Field(ge=1)
    tok_s: float = Field(gt=0)


class CapacitySection(Figures):
    """Γ(batch, context)."""

    points: list[CapacityPoint] = Field(min_length=1)


class KvSection(Figures):
    """The device's KV pool."""

    bytes_per_token: float = Field(gt=0)
    pool_tokens: int = Field(gt=0)


class MadeSection(Section):
    """When, with what and where the measured values were taken."""

    at: datetime
    engine: str
    tokenflow: str
    machine: str


class PerformanceSection(Section):
    """Sections that are left out: the policy's careful guesses."""

    decode: StepSection | None = None
    prefill: StepSection | None = None
    d2h: CopySection | None = None
    h2d: CopySection | None = None
    tails: TailSection | None = None
    capacity: CapacitySection | None = None
    kv: KvSection | None = None
    made: MadeSection | None = None

    def priors(self) -> dict[str, Any]:
        """For the plugin (`tokenflow.sglang.settings.Priors`): what the policy assumes until it has measured."""
        found: dict[str, Any] = {}
        if self.decode is not None:
            found["decode_step"] = [self.decode.fixed_s, self.decode.row_s, self.decode.token_s]
        if self.prefill is not None:
            found["prefill_fixed_s"] = self.prefill.fixed_s
            found["prefill_row_s"] = self.prefill.row_s
            found["prefill_s_per_token"] = self.prefill.token_s
        for name, copy in (("d2h", self.d2h), ("h2d", self.h2d)):
            if copy is not None:  # the slower of the two: a pause and a resume may copy at once
                found[f"{name}_bytes_s"] = min(copy.bytes_s, copy.both_bytes_s or copy.bytes_s)
        for name, copy in (("evict_fixed_s", self.d2h), ("load_fixed_s", self.h2d)):
            if copy is not None and copy.fixed_s is not None:
                found[name] = copy.fixed_s
        if self.tails is not None:
            found["schedule_s"] = self.tails.schedule_s
            found["evict_tail_s"] = self.tails.evict_s
        return {key: value for key, value in found.items() if value is not None}
