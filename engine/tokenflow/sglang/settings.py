"""What the daemon tells the plugin at the engine's start, through the environment."""

import os
from typing import Any

import msgspec

from tokenflow.policy.states import Mode, RequestClass, Variant

SETTINGS_ENV = "TOKENFLOW_SETTINGS"


class ClassSettings(msgspec.Struct, kw_only=True):
    """One class of readers. `rate_tok_s` None: nobody reads along."""

    rate_tok_s: float | None
    max_rate_tok_s: float | None = None


def _default_classes() -> dict[str, ClassSettings]:
    return {
        RequestClass.READING.value: ClassSettings(rate_tok_s=6.0),
        RequestClass.LISTENING.value: ClassSettings(rate_tok_s=3.3),
        RequestClass.AGENT.value: ClassSettings(rate_tok_s=30.0),
        RequestClass.BATCH.value: ClassSettings(rate_tok_s=None),
    }


class PluginSettings(msgspec.Struct, kw_only=True):
    """Unknown keys are ignored, so that a newer daemon can run an older plugin."""

    mode: Mode = Mode.OBSERVE
    variant: Variant = Variant.TOKENFLOW
    default_rate_tok_s: float = 6.0
    tunables: dict[str, Any] = {}  # the others, by key
    classes: dict[str, ClassSettings] = msgspec.field(default_factory=_default_classes)

    def all_tunables(self) -> dict[str, Any]:
        """Those above that are tunables, and the others, by key."""
        named = {"mode": self.mode, "variant": self.variant, "default_rate_tok_s": self.default_rate_tok_s}
        return named | self.tunables


def load() -> PluginSettings:
    """The settings of this process. Raises msgspec.ValidationError on a bad document."""
    text = os.environ.get(SETTINGS_ENV, "")
    settings = msgspec.json.decode(text, type=PluginSettings) if text else PluginSettings()
    settings.classes = _default_classes() | settings.classes
    return settings
