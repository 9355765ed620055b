"""What a profile file may hold. Unknown keys are errors: a misspelt one must not be silently without effect."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator, model_validator

from tokenflow.policy.buffer import MAX_RATE_TOK_S, MIN_RATE_TOK_S
from tokenflowd.profiles.performance import PerformanceSection
from tokenflowd.profiles.section import Section
from tokenflowd.profiles.tunables import TunableOverrides

DEMO_MODEL = "demo"
CREDENTIAL_PREFIX = "credential:"
CREDENTIAL_PATTERN = r"credential:[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


class Device(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


def _check_model_path(value: str) -> str:
    if value != DEMO_MODEL and not Path(value).is_absolute():
        raise ValueError(f'must be "{DEMO_MODEL}" (the built-in demo model) or an absolute folder')
    return value


class ModelSection(Section):
    path: Annotated[str, AfterValidator(_check_model_path)]
    """`demo` for the built-in demo model, else an absolute folder in Hugging Face's layout."""
    served_name: str = Field(min_length=1)
    """The model's name in the OpenAI API."""


def _check_key_file(value: str | None) -> str | None:
    if value is None or Path(value).is_absolute() or re.fullmatch(CREDENTIAL_PATTERN, value):
        return value
    raise ValueError("must be an absolute path, or credential:NAME")


class EngineSection(Section):
    device: Device
    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=30000, ge=0, le=65535)
    """0: the daemon picks a free one at each start."""
    args: list[str] = Field(default_factory=list)
    """Further options of SGLang's server, one word an item."""
    env: dict[str, str] = Field(default_factory=dict)
    """Further environment variables of the engine."""
    api_key_file: Annotated[str | None, AfterValidator(_check_key_file)] = None
    """Holds the key that clients must bring (`Authorization: Bearer KEY`): an absolute path, its mode 0600, or
    `credential:NAME`, one of the service's systemd credentials. Without it everybody who reaches the port is served."""
    admin_key_file: Annotated[str | None, AfterValidator(_check_key_file)] = None
    """Likewise for SGLang's admin routes. Without it nobody has that key."""


class ClassSection(Section):
    """One class of readers."""

    rate_tok_s: float | None = Field(default=None, ge=MIN_RATE_TOK_S, le=MAX_RATE_TOK_S)
    """How fast its readers read. Left out: nobody reads along (batch)."""
    max_rate_tok_s: float | None = Field(default=None, ge=MIN_RATE_TOK_S, le=MAX_RATE_TOK_S)
    """What a client of this class may ask for, or be measured at, at most."""
    needs_ack: bool | None = None
    """Nothing is known of its readers before their first ack: no runway. Left out: true for `agent`, else false."""

    @model_validator(mode="after")
    def _rate_within_cap(self) -> "ClassSection":
        if self.rate_tok_s and self.max_rate_tok_s and self.rate_tok_s > self.max_rate_tok_s:
            raise ValueError(f"rate_tok_s ({self.rate_tok_s:g}) is above max_rate_tok_s ({self.max_rate_tok_s:g})")
        return self


class SlowClient(StrEnum):
    PREEMPT = "preempt"
    ABORT = "abort"


class ClientsSection(Section):
    """What becomes of clients that do not take what is made for them."""

    slow_client: SlowClient = SlowClient.PREEMPT
    """`preempt`: their streams wait until they go on (while enforcing). `abort`: their streams end."""
    max_backlog_tokens: int = Field(default=512, ge=16, le=1_000_000)
    """How much is made ahead for a client that does not drain its stream."""


ClassName = Annotated[str, Field(pattern=NAME_PATTERN)]


class Profile(Section):
    """A whole profile."""

    name: str = Field(pattern=NAME_PATTERN)
    description: str = ""
    model: ModelSection
    engine: EngineSection
    tunables: TunableOverrides = TunableOverrides()
    classes: dict[ClassName, ClassSection] = Field(default_factory=dict)
    clients: ClientsSection = ClientsSection()
    performance: PerformanceSection | None = None
    """What the engine can do: the policy begins with it, and measures for itself from then on."""

    @field_validator("tunables")
    @classmethod
    def _fit_with_defaults(cls, tunables: TunableOverrides) -> TunableOverrides:
        tunables.check_with_defaults()
        return tunables
