"""From the facts of a scrape to the samples of each metric: label values, in the table's order, and a value."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from tokenflow.counters import (
    RUNWAY_BOUNDS_S,
    TRANSFER_BOUNDS_S,
    TRANSITION_BOUNDS_S,
    TTFT_BOUNDS_S,
    Direction,
    Histogram,
    Phase,
)
from tokenflow.policy.states import Reason, RequestState
from tokenflow.version import __version__
from tokenflow.wire import AlarmKind, EngineState, GpuInfo, ThrottleReason
from tokenflowd.metrics.facts import Facts

Sample = tuple[tuple[str, ...], float | Histogram]
Reader = Callable[[Facts], Iterable[Sample]]
ValueT = TypeVar("ValueT", int, float)
DISCONNECT_PHASES = ("first_token", "stream")
PREEMPTION_REASONS = tuple(reason for reason in Reason if reason.startswith("preempted_"))
_LIVE_STATES = tuple(state for state in RequestState if state.is_live)


def _one(value: float | None) -> list[Sample]:
    return [] if value is None else [((), value)]


def build(facts: Facts) -> list[Sample]:
    engine = facts.status.engine
    return [((__version__, engine.version or "", engine.plugin.value, engine.profile or ""), 1.0)]


def engine_state(facts: Facts) -> list[Sample]:
    return [((state.value,), float(facts.status.engine.state is state)) for state in EngineState]


def alarms(facts: Facts) -> list[Sample]:
    raised = {alarm.kind for alarm in facts.status.alarms}
    return [((kind.value,), float(kind in raised)) for kind in AlarmKind]


def telemetry_age(facts: Facts) -> list[Sample]:
    return _one(facts.telemetry_age_s)


def step_age(facts: Facts) -> list[Sample]:
    return _one(facts.status.engine.step_age_s)


def runway(facts: Facts) -> list[Sample]:
    return _histograms(facts, facts.counters.runway_s, facts.reader_classes, RUNWAY_BOUNDS_S)


def runway_min(facts: Facts) -> list[Sample]:
    least: dict[str, float] = {}
    for row in facts.rows:
        if row.state.is_live and row.runway_s is not None and row.delivered_tokens:
            least[row.class_] = min(row.runway_s, least.get(row.class_, row.runway_s))
    return [((name,), runway_s) for name, runway_s in sorted(least.items())]


def stall(facts: Facts) -> list[Sample]:
    return _counted(facts, facts.counters.stall_s, facts.reader_classes)


def stalled(facts: Facts) -> list[Sample]:
    if facts.telemetry is None:
        return []
    counts = dict.fromkeys(facts.reader_classes, 0)
    for stream in facts.telemetry.streams:
        if stream.state.is_live and stream.buffer.is_stalled:
            counts[stream.class_name] = counts.get(stream.class_name, 0) + 1
    return [((name,), count) for name, count in counts.items()]


def requests(facts: Facts) -> list[Sample]:
    if facts.telemetry is None:
        return []
    counts = dict.fromkeys(_LIVE_STATES, 0)
    for stream in facts.telemetry.streams:
        if stream.state.is_live:
            counts[stream.state] += 1
    return [((state.value,), count) for state, count in counts.items()]


def preemptions(facts: Facts) -> list[Sample]:
    if facts.telemetry is None:
        return []
    found = facts.counters.preemptions
    reasons = sorted({*PREEMPTION_REASONS, *(reason for counts in found.values() for reason in counts)})
    return [((name, reason), found.get(name, {}).get(reason, 0)) for name in facts.classes for reason in reasons]


def preempted_age(facts: Facts) -> list[Sample]:
    return _zero_unless(facts, facts.status.capacity.preempted_age_s)


def waiting_age(facts: Facts) -> list[Sample]:
    return _zero_unless(facts, facts.status.capacity.waiting_age_s)


def _zero_unless(facts: Facts, age_s: float | None) -> list[Sample]:
    return [] if facts.telemetry is None else _one(age_s or 0.0)


def capacity(facts: Facts) -> list[Sample]:
    return _one(facts.status.capacity.capacity_tok_s)


def demand(facts: Facts) -> list[Sample]:
    return [] if facts.telemetry is None else _one(facts.status.capacity.demand_tok_s)


def headroom(facts: Facts) -> list[Sample]:
    return _one(facts.status.capacity.headroom_ratio)


def overload(facts: Facts) -> list[Sample]:
    return [] if facts.telemetry is None else _one(float(facts.telemetry.overload))


def queue_depth(facts: Facts) -> list[Sample]:
    return _by_direction(facts, lambda facts, name: getattr(facts.status.transfers, name).queue_count)


def queue_bytes(facts: Facts) -> list[Sample]:
    return _by_direction(facts, lambda facts, name: getattr(facts.status.transfers, name).queue_bytes)


def transfer_bytes(facts: Facts) -> list[Sample]:
    return _by_direction(facts, lambda facts, name: getattr(facts.status.transfers, name).total_bytes)


def _by_direction(facts: Facts, value: Callable[[Facts, str], int]) -> list[Sample]:
    return [] if facts.telemetry is None else [((name.value,), value(facts, name.value)) for name in Direction]


def transfer_seconds(facts: Facts) -> list[Sample]:
    return _histograms(facts, facts.counters.transfer_s, Direction, TRANSFER_BOUNDS_S)


def transition(facts: Facts) -> list[Sample]:
    return _histograms(facts, facts.counters.transition_s, Phase, TRANSITION_BOUNDS_S)


def ttft(facts: Facts) -> list[Sample]:
    return _histograms(facts, facts.counters.ttft_s, facts.reader_classes, TTFT_BOUNDS_S)


def effective_tokens(facts: Facts) -> list[Sample]:
    return _counted(facts, facts.counters.effective_tokens, facts.reader_classes)


def generated_tokens(facts: Facts) -> list[Sample]:
    return _counted(facts, facts.counters.generated_tokens, facts.classes)


def zombie_tokens(facts: Facts) -> list[Sample]:
    return _counted(facts, facts.counters.zombie_tokens, facts.classes)


def disconnects(facts: Facts) -> list[Sample]:
    return [] if facts.telemetry is None else _counted(facts, facts.telemetry.disconnect_counts, DISCONNECT_PHASES)


def steps(facts: Facts) -> list[Sample]:
    return [] if facts.telemetry is None else _one(facts.telemetry.step_count)


def decision_seconds(facts: Facts) -> list[Sample]:
    return [] if facts.telemetry is None else [((), facts.counters.decision_s)]


def faults(facts: Facts) -> list[Sample]:
    return [] if facts.telemetry is None else _one(facts.telemetry.fault_count)


def plugin_seconds(facts: Facts) -> list[Sample]:
    return [] if facts.telemetry is None else _one(facts.telemetry.plugin_spent_s)


def tune_values(facts: Facts) -> list[Sample]:
    return [((key,), float(value)) for key, value in facts.tunables.items() if not isinstance(value, str)]


def tune_choices(facts: Facts) -> list[Sample]:
    return [((key, value), 1.0) for key, value in facts.tunables.items() if isinstance(value, str)]


def of_gpus(value: Callable[[GpuInfo], float | None]) -> Reader:
    """A reader of one figure of each GPU that tells it."""

    def read(facts: Facts) -> list[Sample]:
        told = ((str(gpu.index), value(gpu)) for gpu in facts.status.gpus)
        return [((name,), figure) for name, figure in told if figure is not None]

    return read


def gpu_info(facts: Facts) -> list[Sample]:
    return [((str(gpu.index), gpu.name or "", gpu.uuid or ""), 1.0) for gpu in facts.status.gpus]


def gpu_ecc(facts: Facts) -> list[Sample]:
    found: list[Sample] = []
    for gpu in facts.status.gpus:
        for kind, count in (("corrected", gpu.ecc_corrected_count), ("uncorrected", gpu.ecc_uncorrected_count)):
            if count is not None:
                found.append(((str(gpu.index), kind), count))
    return found


def gpu_throttled(facts: Facts) -> list[Sample]:
    return [
        ((str(gpu.index), reason.value), float(reason in gpu.throttle_reasons))
        for gpu in facts.status.gpus
        if gpu.throttle_reasons is not None
        for reason in ThrottleReason
    ]


def _counted(facts: Facts, counts: Mapping[str, ValueT], names: Iterable[str]) -> list[Sample]:
    """Zero for those that have counted nothing yet, and those that nobody expected too."""
    if facts.telemetry is None:
        return []
    return [((name,), counts.get(name, 0)) for name in sorted({*names, *counts})]


def _histograms(
    facts: Facts, found: Mapping[str, Histogram], names: Iterable[str], bounds: tuple[float, ...]
) -> list[Sample]:
    if facts.telemetry is None:
        return []
    return [((name,), found.get(name) or Histogram.of(bounds)) for name in sorted({*names, *found})]
