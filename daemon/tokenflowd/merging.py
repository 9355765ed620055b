"""Several schedulers' telemetry as that of one engine: sums, the worst, or the oldest, whichever an operator must see.

Pure. With one scheduler nothing is merged.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from tokenflow.counters import Counters, Histogram
from tokenflow.link import KvPools, Telemetry
from tokenflow.policy.states import Mode
from tokenflow.wire import Capacity, Latency, PluginState, Quality, Tail, TransferQueue, Transfers

NumberT = TypeVar("NumberT", int, float)
_WORST_LAST = (PluginState.ACTIVE, PluginState.ABSENT, PluginState.INCOMPATIBLE, PluginState.DISABLED)
_MOST_LAST = (Mode.OFF, Mode.OBSERVE, Mode.ENFORCE)


def merged(all_telemetry: Sequence[Telemetry], *, is_complete: bool = True) -> Telemetry:
    """`all_telemetry`: the latest of each scheduler that has been heard, the first one's first; at least one.

    Modes that differ count as the lesser one, without those of plugins that have turned themselves off. Percentiles are
    those of the slowest scheduler: they cannot be added. The step that is told of is the oldest of those in progress.
    `is_complete`: all have been heard; else Γ is not known.
    """
    first = all_telemetry[0]
    if len(all_telemetry) == 1 and is_complete:
        return first
    at_it = [one for one in all_telemetry if one.plugin is not PluginState.DISABLED] or all_telemetry
    at_work = [one for one in all_telemetry if one.has_work]
    return msgspec.structs.replace(
        first,
        link_version=min(one.link_version for one in all_telemetry),
        sent_s=max(one.sent_s for one in all_telemetry),
        step_count=sum(one.step_count for one in all_telemetry),
        last_step_s=_least(one.last_step_s for one in at_work)
        if at_work
        else _greatest(one.last_step_s for one in all_telemetry),
        has_work=any(one.has_work for one in all_telemetry),
        mode=min((one.mode for one in at_it), key=_MOST_LAST.index),
        overload=any(one.overload for one in all_telemetry),
        revision=sum(one.revision for one in all_telemetry),
        fault_count=sum(one.fault_count for one in all_telemetry),
        plugin_spent_s=sum(one.plugin_spent_s for one in all_telemetry),
        plugin=max((one.plugin for one in all_telemetry), key=_WORST_LAST.index),
        plugin_detail=next((one.plugin_detail for one in all_telemetry if one.plugin_detail), None),
        blocked_by=list(dict.fromkeys(option for one in all_telemetry for option in one.blocked_by)),
        capacity=_capacity([one.capacity for one in all_telemetry], is_complete),
        transfers=Transfers(
            d2h=_queue([one.transfers.d2h for one in all_telemetry]),
            h2d=_queue([one.transfers.h2d for one in all_telemetry]),
        ),
        latency=_latency([one.latency for one in all_telemetry]),
        quality=_quality([one.quality for one in all_telemetry]),
        streams=sorted(
            (stream for one in all_telemetry for stream in one.streams), key=lambda stream: stream.arrival_s
        ),
        disconnect_counts=_sums(one.disconnect_counts for one in all_telemetry),
        counters=_counters([one.counters for one in all_telemetry]),
        events=[],
        kv_pools=_pools([one.kv_pools for one in all_telemetry]),
    )


def _capacity(parts: Sequence[Capacity], is_complete: bool) -> Capacity:
    """Γ is known once it is known of all: half of it would be no capacity."""
    known = [part.capacity_tok_s for part in parts if part.capacity_tok_s is not None]
    total = Capacity(
        capacity_tok_s=sum(known) if is_complete and len(known) == len(parts) else None,
        demand_tok_s=sum(part.demand_tok_s for part in parts),
        running_count=sum(part.running_count for part in parts),
        waiting_count=sum(part.waiting_count for part in parts),
        preempted_count=sum(part.preempted_count for part in parts),
        saturation_forecast_s=_least(part.saturation_forecast_s for part in parts),
        waiting_age_s=_greatest(part.waiting_age_s for part in parts),
        preempted_age_s=_greatest(part.preempted_age_s for part in parts),
    )
    if total.capacity_tok_s:
        total.headroom_ratio = 1.0 - total.demand_tok_s / total.capacity_tok_s
    return total


def _queue(parts: Sequence[TransferQueue]) -> TransferQueue:
    return TransferQueue(
        queue_count=sum(part.queue_count for part in parts),
        queue_bytes=sum(part.queue_bytes for part in parts),
        bandwidth_bytes_s=_least(part.bandwidth_bytes_s for part in parts),
        total_bytes=sum(part.total_bytes for part in parts),
    )


def _latency(parts: Sequence[Latency]) -> Latency:
    return Latency(
        evict_s=_tail([part.evict_s for part in parts]),
        load_s=_tail([part.load_s for part in parts]),
        schedule_s=_tail([part.schedule_s for part in parts]),
        recompute_s_per_token=_greatest(part.recompute_s_per_token for part in parts),
        front_end_s=_tail([part.front_end_s for part in parts]),
        delivery_s=_tail([part.delivery_s for part in parts]),
    )


def _tail(parts: Sequence[Tail]) -> Tail:
    return Tail(
        p50=_greatest(part.p50 for part in parts),
        p99=_greatest(part.p99 for part in parts),
        count=sum(part.count for part in parts),
    )


def _quality(parts: Sequence[Quality]) -> Quality:
    effective = [part.effective_tok_s for part in parts if part.effective_tok_s is not None]
    return Quality(
        ttft_s=_tail([part.ttft_s for part in parts]),
        stall_s_total=sum(part.stall_s_total for part in parts),
        effective_tok_s=sum(effective) if effective else None,
        raw_tok_s=sum(part.raw_tok_s for part in parts),
        preemption_total=sum(part.preemption_total for part in parts),
        zombie_tokens_total=sum(part.zombie_tokens_total for part in parts),
    )


def _counters(parts: Sequence[Counters | None]) -> Counters | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    classes = dict.fromkeys(name for part in known for name in part.preemptions)
    return Counters(
        generated_tokens=_sums(part.generated_tokens for part in known),
        effective_tokens=_sums(part.effective_tokens for part in known),
        zombie_tokens=_sums(part.zombie_tokens for part in known),
        stall_s=_sums(part.stall_s for part in known),
        preemptions={name: _sums(part.preemptions.get(name, {}) for part in known) for name in classes},
        ttft_s=_histograms(part.ttft_s for part in known),
        runway_s=_histograms(part.runway_s for part in known),
        transfer_s=_histograms(part.transfer_s for part in known),
        transition_s=_histograms(part.transition_s for part in known),
        decision_s=_added([part.decision_s for part in known]),
        plugin_spent_s=sum(part.plugin_spent_s for part in known),
    )


def _histograms(parts: Iterable[Mapping[str, Histogram]]) -> dict[str, Histogram]:
    found: dict[str, list[Histogram]] = {}
    for part in parts:
        for key, histogram in part.items():
            found.setdefault(key, []).append(histogram)
    return {key: _added(histograms) for key, histograms in found.items()}


def _added(parts: Sequence[Histogram]) -> Histogram:
    """All of one engine run the same plugin: their buckets are the same."""
    counts = [sum(column) for column in zip(*(part.counts for part in parts), strict=True)]
    return Histogram(parts[0].bounds, counts, sum(part.sum for part in parts))


def _pools(parts: Sequence[KvPools | None]) -> KvPools | None:
    """Of the scheduler whose host pool has the least room: the others' room is of no use to it."""
    known = [part for part in parts if part is not None]
    return min(known, key=_host_room_ratio, default=None)


def _host_room_ratio(pools: KvPools) -> float:
    free_tokens = pools.host_unused_tokens + pools.host_only_tokens
    return free_tokens / pools.host_total_tokens if pools.host_total_tokens else float("inf")


def _sums(parts: Iterable[Mapping[str, NumberT]]) -> dict[str, NumberT]:
    found: dict[str, NumberT] = {}
    for part in parts:
        for key, value in part.items():
            found[key] = found.get(key, 0) + value
    return found


def _greatest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)
