"""The tunables as files and the environment may set them (docs/tuning.md). Null: not set at this level."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tokenflow.policy.states import Mode, Variant

_DEFAULT_OVERLOAD_ENTER_RATIO = 1.0
_DEFAULT_OVERLOAD_EXIT_RATIO = 0.9


class Restore(StrEnum):
    """How a paused request gets its KV back."""

    AUTO = "auto"
    LOAD = "load"
    RECOMPUTE = "recompute"


class TunableOverrides(BaseModel):
    """One level's values. The defaults are the policy's; here only what was written down, within its range."""

    model_config = ConfigDict(extra="forbid")

    mode: Mode | None = None
    variant: Variant | None = None
    safety_factor: float | None = Field(default=None, ge=1, le=20)
    reserve_s: float | None = Field(default=None, ge=0, le=10)
    surplus_s: float | None = Field(default=None, ge=0, le=60)
    tail_quantile: float | None = Field(default=None, ge=0.5, le=0.999)
    default_rate_tok_s: float | None = Field(default=None, ge=0.1, le=10_000)
    ttft_target_s: float | None = Field(default=None, ge=0.05, le=60)
    starvation_bound_s: float | None = Field(default=None, ge=1, le=3600)
    first_run_tokens: int | None = Field(default=None, ge=1, le=4096)
    quantum_s: float | None = Field(default=None, ge=0, le=30)
    max_swaps_per_s: float | None = Field(default=None, ge=0, le=10_000)
    weight_ttft: float | None = Field(default=None, ge=0, le=100)
    weight_stall: float | None = Field(default=None, ge=0, le=100)
    weight_throughput: float | None = Field(default=None, ge=0, le=100)
    min_benefit_s: float | None = Field(default=None, ge=0, le=10)
    overload_enter_ratio: float | None = Field(default=None, ge=0.5, le=2)
    overload_exit_ratio: float | None = Field(default=None, ge=0.1, le=2)
    write_through: bool | None = None
    transfer_budget_ratio: float | None = Field(default=None, ge=0, le=1)
    restore: Restore | None = None
    max_unread_ratio: float | None = Field(default=None, ge=0, le=1)

    @model_validator(mode="after")
    def _exit_below_enter(self) -> "TunableOverrides":
        """Of what this level sets itself: what it leaves to others may be another value than the default."""
        if self.overload_enter_ratio is not None and self.overload_exit_ratio is not None:
            self.check_with_defaults()
        return self

    def check_with_defaults(self) -> None:
        """Raises ValueError where the values do not fit together. For a level under which there are the defaults."""
        enter = self.overload_enter_ratio or _DEFAULT_OVERLOAD_ENTER_RATIO
        leave = self.overload_exit_ratio or _DEFAULT_OVERLOAD_EXIT_RATIO
        if leave >= enter:
            raise ValueError(f"overload_exit_ratio ({leave:g}) must be below overload_enter_ratio ({enter:g})")

    def over(self, weaker: "TunableOverrides") -> "TunableOverrides":
        """These values where they are set, `weaker`'s elsewhere. Raises pydantic.ValidationError if they do not fit."""
        return TunableOverrides.model_validate(
            weaker.model_dump(exclude_none=True) | self.model_dump(exclude_none=True)
        )
