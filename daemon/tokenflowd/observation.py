"""What the engine's telemetry says about its health. Pure: the time is an argument."""

from dataclasses import dataclass

from tokenflow.link import Telemetry
from tokenflow.wire import EngineState, PluginState


@dataclass(frozen=True, slots=True)
class Limits:
    busy_after_s: float
    wedged_after_s: float
    telemetry_stale_after_s: float


def step_age_s(telemetry: Telemetry, work_since_s: float | None, now_s: float) -> float | None:
    """How long the step in progress has taken: since the last one, or since work arrived if that was later.

    None when there is no work, as far as the last telemetry knows.
    """
    if not telemetry.has_work:
        return None
    began_s = max(stamp for stamp in (telemetry.last_step_s, work_since_s, 0.0) if stamp is not None)
    return max(0.0, now_s - began_s)


def is_stale(telemetry: Telemetry, now_s: float, limits: Limits) -> bool:
    """A scheduler between two steps sends at least once a second, idle or not."""
    return telemetry.plugin is PluginState.ACTIVE and now_s - telemetry.sent_s > limits.telemetry_stale_after_s


def judge(telemetry: Telemetry | None, work_since_s: float | None, now_s: float, limits: Limits) -> EngineState:
    """`serving`, `busy` or `wedged`. From the step counter only: a probe would itself be work."""
    if telemetry is None or telemetry.plugin is not PluginState.ACTIVE:
        return EngineState.SERVING  # nobody counts steps
    age_s = step_age_s(telemetry, work_since_s, now_s)
    if age_s is None and is_stale(telemetry, now_s, limits):
        # Telemetry is sent between steps. Silence means a step that began just after the last message.
        age_s = now_s - telemetry.sent_s
    return EngineState.SERVING if age_s is None else _by_age(age_s, limits)


def judge_silence(silence_s: float, limits: Limits) -> EngineState:
    """Of an adopted engine whose scheduler spoke to the daemon before us and has not been heard since."""
    return EngineState.SERVING if silence_s <= limits.telemetry_stale_after_s else _by_age(silence_s, limits)


def _by_age(age_s: float, limits: Limits) -> EngineState:
    if age_s <= limits.busy_after_s:
        return EngineState.SERVING
    return EngineState.WEDGED if age_s > limits.wedged_after_s else EngineState.BUSY
