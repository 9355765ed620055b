"""The panels of the dashboard: what is looked at, in which order."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Query:
    """`expr` is PromQL; `$s` in it stands for the selector of job and instance, `$l,` for the same inside braces."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str  # Grafana's name of it
    queries: tuple[Query, ...]
    description: str
    needs_gpu: bool = False


def _quantiles(metric: str, by: str) -> tuple[Query, ...]:
    return tuple(
        Query(
            f"histogram_quantile({quantile}, sum by (le, {by}) (rate({metric}_bucket$s[$__rate_interval])))",
            f"{{{{{by}}}}} p{round(quantile * 100)}",
        )
        for quantile in (0.5, 0.99)
    )


ROWS: dict[str, tuple[Panel, ...]] = {
    "Readers": (
        Panel(
            "Least runway",
            "s",
            (Query("min by (class) (tokenflow_runway_min_seconds$s)", "{{class}}"),),
            "Seconds until the first reader of each class runs dry.",
        ),
        Panel(
            "Runway: share of streams below",
            "percentunit",
            tuple(
                Query(
                    f'sum(rate(tokenflow_runway_seconds_bucket{{$l,le="{bound}"}}[$__rate_interval])) / '
                    "sum(rate(tokenflow_runway_seconds_count$s[$__rate_interval]))",
                    f"{bound} s",
                )
                for bound in ("0.5", "2.0", "10.0")
            ),
            "Of all streams with a reader, sampled once a second.",
        ),
        Panel(
            "Stalled time per reader",
            "percentunit",
            (
                Query(
                    "sum(rate(tokenflow_stall_seconds_total$s[$__rate_interval])) / "
                    'clamp_min(sum(tokenflow_requests{$l,state!="waiting"}), 1)',
                    "stalled",
                ),
            ),
            "Share of the time in which a reader has nothing to read.",
        ),
        Panel(
            "Stalled streams",
            "short",
            (Query("sum by (class) (tokenflow_stalled_requests$s)", "{{class}}"),),
            "Streams whose reader has nothing to read now.",
        ),
        Panel(
            "Time to first token",
            "s",
            _quantiles("tokenflow_ttft_seconds", "class"),
            "Arrival to the delivery of the first visible token.",
        ),
        Panel(
            "Tokens",
            "short",
            (
                Query("sum(rate(tokenflow_generated_tokens_total$s[$__rate_interval]))", "made/s"),
                Query("sum(rate(tokenflow_effective_tokens_total$s[$__rate_interval]))", "effective/s"),
                Query("sum(rate(tokenflow_zombie_tokens_total$s[$__rate_interval]))", "for nobody/s"),
            ),
            "Effective: weighed by how much the reader had unread when they came.",
        ),
        Panel(
            "Clients that left early",
            "short",
            (Query("sum by (phase) (rate(tokenflow_client_disconnects_total$s[$__rate_interval]))", "{{phase}}"),),
            "Per second, before the first token or in the stream.",
        ),
    ),
    "Policy": (
        Panel(
            "Capacity and demand",
            "short",
            (
                Query("sum(tokenflow_capacity_tokens_per_second$s)", "capacity tok/s"),
                Query("sum(tokenflow_demand_tokens_per_second$s)", "demand tok/s"),
            ),
            "What the engine can make against what all live readers read.",
        ),
        Panel(
            "Headroom",
            "percentunit",
            (
                Query("tokenflow_admission_headroom_ratio$s", "headroom"),
                Query("tokenflow_overload$s", "overload"),
            ),
            "1 - demand / capacity; overload is 1 while the policy is in it.",
        ),
        Panel("Requests", "short", (Query("sum by (state) (tokenflow_requests$s)", "{{state}}"),), "Live, by state."),
        Panel(
            "Preemptions",
            "short",
            (Query("sum by (reason) (rate(tokenflow_preemptions_total$s[$__rate_interval]))", "{{reason}}"),),
            "Per second, by reason.",
        ),
        Panel(
            "Longest pause and wait",
            "s",
            (
                Query("tokenflow_preempted_age_seconds$s", "paused"),
                Query("tokenflow_waiting_age_seconds$s", "waiting"),
                Query('tokenflow_tune_value{$l,key="starvation_bound_s"}', "starvation bound"),
            ),
            "Of the streams that are paused, and of those that wait for their first run.",
        ),
        Panel(
            "Decision time",
            "s",
            (
                *(
                    Query(
                        f"histogram_quantile({quantile}, "
                        "sum by (le) (rate(tokenflow_policy_decision_seconds_bucket$s[$__rate_interval])))",
                        name,
                    )
                    for quantile, name in ((0.5, "p50"), (0.99, "p99"))
                ),
                Query("rate(tokenflow_plugin_seconds_total$s[$__rate_interval])", "plugin's share of the scheduler"),
            ),
            "What the plugin costs the scheduler.",
        ),
        Panel(
            "Mode and tunables",
            "short",
            (
                Query("tokenflow_tune_info$s", "{{key}} = {{value}}"),
                Query('tokenflow_tune_value{$l,key=~"safety_factor|quantum_s|reserve_s|surplus_s"}', "{{key}}"),
            ),
            "What is in force.",
        ),
    ),
    "KV transfers": (
        Panel(
            "Bandwidth",
            "Bps",
            (
                Query(
                    "sum by (direction) (rate(tokenflow_kv_transfer_bytes_total$s[$__rate_interval]))", "{{direction}}"
                ),
            ),
            "Bytes per second between device and host.",
        ),
        Panel(
            "Queue",
            "bytes",
            (
                Query("sum by (direction) (tokenflow_kv_transfer_queue_bytes$s)", "{{direction}}"),
                Query("sum by (direction) (tokenflow_kv_transfer_queue_depth$s)", "{{direction}} copies"),
            ),
            "Copies under way or queued.",
        ),
        Panel("Copies", "s", _quantiles("tokenflow_kv_transfer_seconds", "direction"), "Time of one copy."),
        Panel(
            "Transitions",
            "s",
            _quantiles("tokenflow_transition_seconds", "phase"),
            "Evict, load and schedule as the policy counts with them; the length of pauses.",
        ),
    ),
    "Engine": (
        Panel("State", "short", (Query("tokenflow_engine_state$s == 1", "{{state}}"),), "Of the engine."),
        Panel("Alarms", "short", (Query("sum by (kind) (tokenflow_alarm$s)", "{{kind}}"),), "Those of tfctl status."),
        Panel(
            "Steps",
            "short",
            (Query("rate(tokenflow_scheduler_steps_total$s[$__rate_interval])", "steps/s"),),
            "The heartbeat of the engine.",
        ),
        Panel(
            "Silence",
            "s",
            (
                Query("tokenflow_telemetry_age_seconds$s", "telemetry"),
                Query("tokenflow_scheduler_step_age_seconds$s", "last step"),
            ),
            "Time since the scheduler spoke, and since its last step.",
        ),
        Panel(
            "Faults of the plugin",
            "short",
            (Query("tokenflow_policy_faults_total$s", "faults"),),
            "All caught; after twenty the plugin turns itself off.",
        ),
        Panel(
            "Versions",
            "short",
            (Query("tokenflow_build_info$s", "{{version}}, SGLang {{engine_version}}, plugin {{plugin}}"),),
            "What runs.",
        ),
    ),
    "GPUs": (
        Panel(
            "Memory",
            "bytes",
            (
                Query("tokenflow_gpu_memory_used_bytes$s", "{{gpu}} used"),
                Query("tokenflow_gpu_memory_total_bytes$s", "{{gpu}} total"),
            ),
            "Of each GPU.",
            True,
        ),
        Panel(
            "Utilisation",
            "percentunit",
            (Query("tokenflow_gpu_utilization_ratio$s", "{{gpu}}"),),
            "Share of the time in which a kernel ran.",
            True,
        ),
        Panel(
            "Power",
            "watt",
            (
                Query("tokenflow_gpu_power_watts$s", "{{gpu}}"),
                Query("tokenflow_gpu_power_limit_watts$s", "{{gpu}} limit"),
            ),
            "Drawn, and its limit.",
            True,
        ),
        Panel(
            "Temperature", "celsius", (Query("tokenflow_gpu_temperature_celsius$s", "{{gpu}}"),), "Of each GPU.", True
        ),
        Panel(
            "PCIe",
            "Bps",
            (
                Query("tokenflow_gpu_pcie_rx_bytes_per_second$s", "{{gpu}} from the host"),
                Query("tokenflow_gpu_pcie_tx_bytes_per_second$s", "{{gpu}} to the host"),
            ),
            "All traffic of the GPU, KV copies among it.",
            True,
        ),
        Panel(
            "PCIe link",
            "short",
            (
                Query("tokenflow_gpu_pcie_width$s", "{{gpu}} lanes"),
                Query("tokenflow_gpu_pcie_width_max$s", "{{gpu}} lanes at most"),
                Query("tokenflow_gpu_pcie_generation$s", "{{gpu}} generation"),
            ),
            "An idle GPU may lower its generation.",
            True,
        ),
        Panel(
            "Throttling and ECC",
            "short",
            (
                Query("tokenflow_gpu_throttled$s == 1", "{{gpu}} {{reason}}"),
                Query("tokenflow_gpu_ecc_errors_total$s", "{{gpu}} {{type}}"),
                Query("tokenflow_gpu_info$s", "{{gpu}} {{name}}"),
            ),
            "What keeps a GPU from its full clock; memory errors.",
            True,
        ),
    ),
}
