"""What the daemon tells the plugin at the engine's start, through the environment."""

import os
from dataclasses import replace
from enum import StrEnum
from typing import Any

import msgspec

from tokenflow.policy.capacity import StepTimeFit
from tokenflow.policy.costs import Costs
from tokenflow.policy.states import Mode, RequestClass, Variant

SETTINGS_ENV = "TOKENFLOW_SETTINGS"


class SlowClient(StrEnum):
    """What becomes of a stream whose client does not drain it, once its backlog is full."""

    PREEMPT = "preempt"  # it is paused until the client goes on; while enforcing
    ABORT = "abort"


class ClassSettings(msgspec.Struct, kw_only=True):
    """One class of readers. `rate_tok_s` None: nobody reads along.

    `needs_ack`: how fast it reads is not known before its first ack. None: as the built-in class of that name.
    """

    rate_tok_s: float | None
    max_rate_tok_s: float | None = None
    needs_ack: bool | None = None


def _default_classes() -> dict[str, ClassSettings]:
    return {
        RequestClass.READING.value: ClassSettings(rate_tok_s=6.0),
        RequestClass.LISTENING.value: ClassSettings(rate_tok_s=3.3),
        RequestClass.AGENT.value: ClassSettings(rate_tok_s=30.0, needs_ack=True),
        RequestClass.BATCH.value: ClassSettings(rate_tok_s=None),
    }


class Priors(msgspec.Struct, kw_only=True):
    """What the profile says of the machine: decisions are made with it until the scheduler has measured for itself.

    None: the policy's own careful guess. `decode_step`: seconds fixed, per stream and per token of context.
    """

    decode_step: tuple[float, float, float] | None = None
    prefill_fixed_s: float | None = None
    prefill_row_s: float | None = None
    prefill_s_per_token: float | None = None
    d2h_bytes_s: float | None = None
    h2d_bytes_s: float | None = None
    evict_fixed_s: float | None = None
    load_fixed_s: float | None = None
    schedule_s: float | None = None
    evict_tail_s: float | None = None

    def costs(self) -> Costs:
        """The policy's guesses, with what is known in their place."""
        known = {key: value for key, value in msgspec.structs.asdict(self).items() if value is not None}
        known.pop("decode_step", None)
        return replace(Costs(), **known)

    def decode_fit(self) -> StepTimeFit:
        return StepTimeFit() if self.decode_step is None else StepTimeFit(self.decode_step)


class PluginSettings(msgspec.Struct, kw_only=True):
    """Unknown keys are ignored, so that a newer daemon can run an older plugin."""

    mode: Mode = Mode.OBSERVE
    variant: Variant = Variant.TOKENFLOW
    default_rate_tok_s: float = 6.0
    tunables: dict[str, Any] = {}  # the others, by key
    priors: Priors = msgspec.field(default_factory=Priors)
    slow_client: SlowClient = SlowClient.PREEMPT
    max_backlog_tokens: int = 512  # made and not taken by a client that does not drain its stream
    classes: dict[str, ClassSettings] = msgspec.field(default_factory=_default_classes)

    def all_tunables(self) -> dict[str, Any]:
        """Those above that are tunables, and the others, by key."""
        named = {"mode": self.mode, "variant": self.variant, "default_rate_tok_s": self.default_rate_tok_s}
        return named | self.tunables


def load() -> PluginSettings:
    """The settings of this process. Raises msgspec.ValidationError on a bad document."""
    text = os.environ.get(SETTINGS_ENV, "")
    settings = msgspec.json.decode(text, type=PluginSettings) if text else PluginSettings()
    built_in = _default_classes()
    settings.classes = built_in | settings.classes
    for name, kind in settings.classes.items():
        if kind.needs_ack is None:
            kind.needs_ack = bool(built_in[name].needs_ack) if name in built_in else False
    return settings
