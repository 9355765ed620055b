"""Every metric: name, kind, labels, what it says and where it comes from. The names are API.

The collector, the table in docs/metrics.md, the dashboard and the alert rules are made from this or checked against it:
`python -m tokenflowd.metrics.generate docs` brings the files up to date.
"""

from dataclasses import dataclass
from enum import StrEnum

from tokenflow.counters import (
    DECISION_BOUNDS_S,
    RUNWAY_BOUNDS_S,
    TRANSFER_BOUNDS_S,
    TRANSITION_BOUNDS_S,
    TTFT_BOUNDS_S,
)
from tokenflowd.metrics import readers
from tokenflowd.metrics.readers import Reader, of_gpus

PREFIX = "tokenflow_"


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"  # a gauge that is 1; what it says is in its labels


@dataclass(frozen=True, slots=True)
class Metric:
    """`name` is without the prefix. Histograms have their buckets' upper bounds in `bounds`, the infinite one apart."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    read: Reader
    bounds: tuple[float, ...] = ()

    @property
    def is_per_scheduler(self) -> bool:
        """Each of several schedulers has its own figure; else it is one of the engine as a whole, or of the host."""
        return self.name not in _OF_THE_WHOLE and not self.name.startswith("gpu_")


SCHEDULER_LABEL = "scheduler"  # the last one, and only where there are several
_OF_THE_WHOLE = frozenset({"build_info", "engine_state", "alarm", "tune_value", "tune_info"})
_COUNTER, _GAUGE, _HISTOGRAM, _INFO = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM, Kind.INFO

_READERS = (
    Metric(
        "runway_seconds",
        _HISTOGRAM,
        ("class",),
        "Unread tokens / consumption rate of every stream with a reader, sampled once a second.",
        readers.runway,
        RUNWAY_BOUNDS_S,
    ),
    Metric("runway_min_seconds", _GAUGE, ("class",), "Least runway of the live streams.", readers.runway_min),
    Metric("stall_seconds_total", _COUNTER, ("class",), "Time for which readers had nothing to read.", readers.stall),
    Metric("stalled_requests", _GAUGE, ("class",), "Streams whose reader has nothing to read now.", readers.stalled),
    Metric(
        "ttft_seconds",
        _HISTOGRAM,
        ("class",),
        "Arrival of a request to the delivery of its first visible token; streams with a reader only.",
        readers.ttft,
        TTFT_BOUNDS_S,
    ),
    Metric(
        "effective_tokens_total",
        _COUNTER,
        ("class",),
        "Delivered tokens, each by its weight: 1 while less than 10 % of the answer is unread, 0 from 20 % on.",
        readers.effective_tokens,
    ),
    Metric("generated_tokens_total", _COUNTER, ("class",), "Tokens made, hidden ones too.", readers.generated_tokens),
    Metric("zombie_tokens_total", _COUNTER, ("class",), "Tokens made after their client left.", readers.zombie_tokens),
    Metric(
        "client_disconnects_total",
        _COUNTER,
        ("phase",),
        "Clients that left early: before the first token, or in the stream.",
        readers.disconnects,
    ),
)
_POLICY = (
    Metric("requests", _GAUGE, ("state",), "Live requests by state.", readers.requests),
    Metric("preemptions_total", _COUNTER, ("class", "reason"), "Streams taken out of the batch.", readers.preemptions),
    Metric("preempted_age_seconds", _GAUGE, (), "Longest pause, holds by hand apart; 0: none.", readers.preempted_age),
    Metric("waiting_age_seconds", _GAUGE, (), "Longest wait for a first run; 0: nobody waits.", readers.waiting_age),
    Metric("capacity_tokens_per_second", _GAUGE, (), "Capacity that the policy counts with.", readers.capacity),
    Metric("demand_tokens_per_second", _GAUGE, (), "Sum of the rates of all live readers.", readers.demand),
    Metric("admission_headroom_ratio", _GAUGE, (), "1 - demand / capacity; below 0: overload.", readers.headroom),
    Metric("overload", _GAUGE, (), "1 while the policy is in overload, else 0.", readers.overload),
    Metric(
        "policy_decision_seconds",
        _HISTOGRAM,
        (),
        "One question to the policy: reading the requests' states, and its answer.",
        readers.decision_seconds,
        DECISION_BOUNDS_S,
    ),
    Metric("policy_faults_total", _COUNTER, (), "Exceptions of the plugin, all caught.", readers.faults),
    Metric("plugin_seconds_total", _COUNTER, (), "Time of the scheduler spent in the plugin.", readers.plugin_seconds),
    Metric("tune_value", _GAUGE, ("key",), "Tunables in force; 0 and 1 for off and on.", readers.tune_values),
    Metric("tune_info", _INFO, ("key", "value"), "Tunables in force whose value is a word.", readers.tune_choices),
)
_TRANSFERS = (
    Metric("kv_transfer_queue_depth", _GAUGE, ("direction",), "Copies under way or queued.", readers.queue_depth),
    Metric("kv_transfer_queue_bytes", _GAUGE, ("direction",), "Bytes of those copies.", readers.queue_bytes),
    Metric("kv_transfer_bytes_total", _COUNTER, ("direction",), "Bytes copied.", readers.transfer_bytes),
    Metric(
        "kv_transfer_seconds",
        _HISTOGRAM,
        ("direction",),
        "One copy of KV between device and host, without queueing.",
        readers.transfer_seconds,
        TRANSFER_BOUNDS_S,
    ),
    Metric(
        "transition_seconds",
        _HISTOGRAM,
        ("phase",),
        "evict and load: one copy, as the policy counts with it; schedule: one step of the engine; "
        "paused: a stream's pause until its return.",
        readers.transition,
        TRANSITION_BOUNDS_S,
    ),
)
_ENGINE = (
    Metric("build_info", _INFO, ("version", "engine_version", "plugin", "profile"), "What runs.", readers.build),
    Metric("engine_state", _GAUGE, ("state",), "1 for the engine's state, 0 for the others.", readers.engine_state),
    Metric("alarm", _GAUGE, ("kind",), "1 for every alarm that tfctl status shows, else 0.", readers.alarms),
    Metric("scheduler_steps_total", _COUNTER, (), "Steps of the engine: its heartbeat.", readers.steps),
    Metric("scheduler_step_age_seconds", _GAUGE, (), "Time since the last step.", readers.step_age),
    Metric("telemetry_age_seconds", _GAUGE, (), "Time since the scheduler last spoke.", readers.telemetry_age),
)
_GPU = ("gpu",)
_GPUS = (
    Metric("gpu_info", _INFO, ("gpu", "name", "uuid"), "GPUs of the host.", readers.gpu_info),
    Metric("gpu_memory_used_bytes", _GAUGE, _GPU, "Memory in use.", of_gpus(lambda gpu: gpu.memory_used_bytes)),
    Metric("gpu_memory_total_bytes", _GAUGE, _GPU, "Memory.", of_gpus(lambda gpu: gpu.memory_total_bytes)),
    Metric(
        "gpu_utilization_ratio",
        _GAUGE,
        _GPU,
        "Share of the time in which a kernel ran.",
        of_gpus(lambda gpu: gpu.utilization_ratio),
    ),
    Metric("gpu_power_watts", _GAUGE, _GPU, "Power drawn.", of_gpus(lambda gpu: gpu.power_w)),
    Metric("gpu_power_limit_watts", _GAUGE, _GPU, "Power limit.", of_gpus(lambda gpu: gpu.power_limit_w)),
    Metric("gpu_temperature_celsius", _GAUGE, _GPU, "Temperature.", of_gpus(lambda gpu: gpu.temperature_c)),
    Metric(
        "gpu_pcie_rx_bytes_per_second", _GAUGE, _GPU, "PCIe, from the host.", of_gpus(lambda gpu: gpu.pcie_rx_bytes_s)
    ),
    Metric(
        "gpu_pcie_tx_bytes_per_second", _GAUGE, _GPU, "PCIe, to the host.", of_gpus(lambda gpu: gpu.pcie_tx_bytes_s)
    ),
    Metric("gpu_pcie_generation", _GAUGE, _GPU, "PCIe generation now.", of_gpus(lambda gpu: gpu.pcie_generation)),
    Metric("gpu_pcie_width", _GAUGE, _GPU, "PCIe lanes now.", of_gpus(lambda gpu: gpu.pcie_width)),
    Metric("gpu_pcie_width_max", _GAUGE, _GPU, "PCIe lanes at most.", of_gpus(lambda gpu: gpu.pcie_width_max)),
    Metric(
        "gpu_ecc_errors_total",
        _COUNTER,
        ("gpu", "type"),
        "ECC errors since the driver was loaded: corrected, uncorrected.",
        readers.gpu_ecc,
    ),
    Metric(
        "gpu_throttled",
        _GAUGE,
        ("gpu", "reason"),
        "1 where that reason keeps the GPU from its full clock, else 0.",
        readers.gpu_throttled,
    ),
)
GROUPS: dict[str, tuple[Metric, ...]] = {
    "Readers": _READERS,
    "Policy": _POLICY,
    "KV transfers": _TRANSFERS,
    "Engine": _ENGINE,
    "GPUs": _GPUS,
}
METRICS: tuple[Metric, ...] = tuple(metric for group in GROUPS.values() for metric in group)
