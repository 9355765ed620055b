"""All that one scrape is made of, taken at one moment."""

from dataclasses import dataclass, field
from typing import Any

from tokenflow.counters import Counters
from tokenflow.link import Telemetry
from tokenflow.policy.states import RequestClass
from tokenflow.wire import RequestRow, StatusDocument


@dataclass(frozen=True, slots=True)
class Facts:
    """`telemetry` None: no engine, or one whose plugin has not spoken; its metrics have no samples then."""

    status: StatusDocument
    telemetry: Telemetry | None = None
    telemetry_age_s: float | None = None
    rows: list[RequestRow] = field(default_factory=list)
    tunables: dict[str, Any] = field(default_factory=dict)  # in force; empty where the engine has not said
    own_classes: tuple[str, ...] = ()  # the profile's

    @property
    def counters(self) -> Counters:
        """All zero where the plugin does not count."""
        found = self.telemetry.counters if self.telemetry is not None else None
        return found if found is not None else Counters()

    @property
    def classes(self) -> list[str]:
        """Every class that may be counted: a series that begins at zero shows its first increase."""
        return sorted({*RequestClass, *self.own_classes, *self.counters.generated_tokens})

    @property
    def reader_classes(self) -> list[str]:
        """Without those where nobody reads along."""
        seen = {*self.counters.ttft_s, *self.counters.runway_s}
        return [name for name in self.classes if name != RequestClass.BATCH or name in seen]
