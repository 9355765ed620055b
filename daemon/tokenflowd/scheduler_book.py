"""What the engine's schedulers have said last: of each, and of all together."""

from dataclasses import dataclass

from tokenflow.link import Telemetry
from tokenflow.wire import EngineState
from tokenflowd import merging, observation
from tokenflowd.observation import Limits

_WORST_LAST = (EngineState.SERVING, EngineState.BUSY, EngineState.WEDGED)


@dataclass(slots=True)
class _Heard:
    telemetry: Telemetry
    work_since_s: float | None = None


class SchedulerBook:
    """One engine's. With one scheduler, `whole` is its telemetry as it came."""

    def __init__(self) -> None:
        self._heard: dict[int, _Heard] = {}
        self._whole: Telemetry | None = None

    def take(self, telemetry: Telemetry) -> None:
        """Its latest."""
        heard = self._heard.get(telemetry.scheduler_index)
        if heard is None:
            heard = self._heard[telemetry.scheduler_index] = _Heard(telemetry)
            self._heard = dict(sorted(self._heard.items()))
            had_work = False
        else:
            had_work = heard.telemetry.has_work
            heard.telemetry = telemetry
        if telemetry.has_work and not had_work:
            heard.work_since_s = telemetry.sent_s
        self._whole = merging.merged(self.each)

    @property
    def whole(self) -> Telemetry | None:
        """Of all schedulers together; None before the first has been heard."""
        return self._whole

    @property
    def each(self) -> list[Telemetry]:
        """Of each scheduler that has been heard, the first one's first."""
        return [heard.telemetry for heard in self._heard.values()]

    @property
    def heard_s(self) -> float | None:
        """When the one spoke that has been silent for longest."""
        return min((heard.telemetry.sent_s for heard in self._heard.values()), default=None)

    def judge(self, now_s: float, limits: Limits) -> EngineState:
        """`serving`, `busy` or `wedged`: an engine is as well as the worst of its schedulers."""
        states = [
            observation.judge(heard.telemetry, heard.work_since_s, now_s, limits) for heard in self._heard.values()
        ]
        return max(states, key=_WORST_LAST.index, default=EngineState.SERVING)
