"""All that one scrape is made of, taken at one moment."""

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

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
    schedulers: "tuple[Facts, ...]" = ()  # the same of each scheduler; empty where there is one only

    def of_scheduler(self, telemetry: Telemetry, now_s: float) -> "Facts":
        """As if that one were the whole engine."""
        rids = {stream.rid for stream in telemetry.streams}
        step_age_s = None if telemetry.last_step_s is None else round(max(0.0, now_s - telemetry.last_step_s), 3)
        status = msgspec.structs.replace(
            self.status,
            engine=msgspec.structs.replace(self.status.engine, step_age_s=step_age_s),
            capacity=telemetry.capacity,
            transfers=telemetry.transfers,
        )
        return replace(
            self,
            status=status,
            telemetry=telemetry,
            telemetry_age_s=max(0.0, now_s - telemetry.sent_s),
            rows=[row for row in self.rows if row.rid in rids],
        )

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
