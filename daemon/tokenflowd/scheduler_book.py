"""What the engine's schedulers have said last: of each, and of all together."""

from collections.abc import Callable, Sequence
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
    """One engine's. With one scheduler, `whole` is its telemetry as it came.

    `bound_count` says how many have bound their sockets: one that could not be attached is not waited for.
    """

    def __init__(self, bound_count: Callable[[], int] | None = None) -> None:
        self._bound_count = bound_count
        self._heard: dict[int, _Heard] = {}
        self._whole: Telemetry | None = None

    def take(self, messages: Sequence[Telemetry]) -> Telemetry:
        """The latest of those that have spoken; returns that of all together."""
        assert messages
        for telemetry in messages:
            self._note(telemetry)
        self._heard = dict(sorted(self._heard.items()))
        self._whole = merging.merged(self.each, is_complete=self.is_complete)
        return self._whole

    def _note(self, telemetry: Telemetry) -> None:
        heard = self._heard.get(telemetry.scheduler_index)
        if heard is None:
            heard = self._heard[telemetry.scheduler_index] = _Heard(telemetry)
            had_work = False
        else:
            had_work = heard.telemetry.has_work
            heard.telemetry = telemetry
        if telemetry.has_work and not had_work:
            heard.work_since_s = telemetry.sent_s

    @property
    def whole(self) -> Telemetry | None:
        """Of all schedulers together; None before the first has been heard."""
        return self._whole

    @property
    def each(self) -> list[Telemetry]:
        """Of each scheduler that has been heard, the first one's first."""
        return [heard.telemetry for heard in self._heard.values()]

    @property
    def is_complete(self) -> bool:
        """Whether every scheduler with a link has been heard."""
        expected = max((heard.telemetry.watched_count for heard in self._heard.values()), default=1)
        if len(self._heard) >= expected:
            return True
        return self._bound_count is not None and 0 < self._bound_count() <= len(self._heard)

    @property
    def heard_s(self) -> float | None:
        """When the one spoke that has been silent for longest; None where one has never been heard."""
        if not self.is_complete:
            return None
        return min(heard.telemetry.sent_s for heard in self._heard.values())

    def judge(self, now_s: float, limits: Limits, serving_since_s: float | None = None) -> EngineState:
        """`serving`, `busy` or `wedged`: an engine is as well as the worst of its schedulers.

        One that has not been heard since the engine serves counts by its silence.
        """
        states = [
            observation.judge(heard.telemetry, heard.work_since_s, now_s, limits) for heard in self._heard.values()
        ]
        if self._heard and not self.is_complete and serving_since_s is not None:
            states.append(observation.judge_silence(now_s - serving_since_s, limits))
        return max(states, key=_WORST_LAST.index, default=EngineState.SERVING)
