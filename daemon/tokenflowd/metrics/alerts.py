"""The alert rules: one for each alarm of `tfctl status`, and those that need a look at the past.

Each has its page in docs/runbook.md, and a planted fault on which `promtool test rules` sees it fire.
"""

from dataclasses import dataclass
from enum import StrEnum

from tokenflow.wire import AlarmKind
from tokenflowd.metrics.table import PREFIX


class Severity(StrEnum):
    CRITICAL = "critical"  # somebody gets up: requests are not served
    WARNING = "warning"  # somebody looks at it in the morning


@dataclass(frozen=True, slots=True)
class Alert:
    """`expr` is PromQL; it must hold for `for_` before the alert fires.

    `planted` are series and values (promtool's notation, one a minute) on which it does within half an hour.
    """

    name: str
    expr: str
    for_: str
    severity: Severity
    summary: str
    page: str
    planted: tuple[tuple[str, str], ...]


_CRITICAL_KINDS = (AlarmKind.ENGINE_FAILED, AlarmKind.ENGINE_WEDGED)
_SUMMARIES = {
    AlarmKind.ENGINE_FAILED: "The engine has ended by itself: no request is served.",
    AlarmKind.ENGINE_RESTARTED: "The engine has failed and was started again.",
    AlarmKind.ENGINE_WEDGED: "The engine has work and makes no step.",
    AlarmKind.TELEMETRY_STALE: "The scheduler has not been heard from.",
    AlarmKind.PLUGIN_ABSENT: "The engine runs without the plugin: stock scheduling.",
    AlarmKind.PLUGIN_INCOMPATIBLE: "The plugin does not know this SGLang: stock scheduling.",
    AlarmKind.PLUGIN_DISABLED: "The plugin has turned itself off after too many faults: stock scheduling.",
    AlarmKind.PLUGIN_OTHER_VERSION: "Daemon and plugin know different versions of the link between them.",
    AlarmKind.ENFORCE_BLOCKED: "Mode enforce was asked for, and an option of the engine rules it out.",
    AlarmKind.SCHEDULERS_UNSEEN: "Only the first of several schedulers is watched: all figures are its own.",
    AlarmKind.RANK_SKEW: "The ranks came to differ: all streams were started over, and scheduling is stock.",
    AlarmKind.PREEMPTION_STORM: "KV memory is full: streams are taken out more often than every two seconds.",
    AlarmKind.THRASH: "A stream is moved again and again and makes next to nothing.",
    AlarmKind.ZOMBIES: "Tokens are made for clients that have left.",
    AlarmKind.STARVATION: "A request has waited for more than twice the starvation bound.",
    AlarmKind.HOST_POOL_FULL: "The host pool of KV has no room for new copies.",
    AlarmKind.METRICS_UNAVAILABLE: "The address for Prometheus could not be had.",
}
SCRAPE_JOB = "tokenflow"
_STEADY_1 = "1x60"
_ONE_BY_ONE = "0+1x60"
_WARNING = Severity.WARNING


def _of_alarm(kind: AlarmKind) -> Alert:
    name = "".join(word.capitalize() for word in kind.value.split("_"))
    selector = f'{PREFIX}alarm{{kind="{kind.value}"}}'
    return Alert(
        name=f"TokenFlow{name}",
        expr=f"{selector} == 1",
        for_="1m",
        severity=Severity.CRITICAL if kind in _CRITICAL_KINDS else _WARNING,
        summary=_SUMMARIES[kind],
        page=kind.value,
        planted=((selector, _STEADY_1),),
    )


_OF_THE_PAST = (
    Alert(
        "TokenFlowDown",
        f'up{{job="{SCRAPE_JOB}"}} == 0',
        "2m",
        Severity.CRITICAL,
        "Prometheus cannot scrape tokenflowd.",
        "down",
        ((f'up{{job="{SCRAPE_JOB}"}}', "0x60"),),
    ),
    Alert(
        "TokenFlowReadersStall",
        "sum without (class) (rate(tokenflow_stall_seconds_total[5m])) / "
        'clamp_min(sum without (state) (avg_over_time(tokenflow_requests{state!="waiting"}[5m])), 1) > 0.05',
        "5m",
        _WARNING,
        "Readers have nothing to read for more than 5 % of the time.",
        "readers_stall",
        (
            ('tokenflow_stall_seconds_total{class="reading",instance="a",job="tokenflow"}', "0+30x60"),
            ('tokenflow_requests{state="running",instance="a",job="tokenflow"}', "4x60"),
        ),
    ),
    Alert(
        "TokenFlowFirstTokensLate",
        "histogram_quantile(0.99, sum without (class) (rate(tokenflow_ttft_seconds_bucket[10m]))) > 10",
        "10m",
        _WARNING,
        "One first token in a hundred takes longer than 10 s.",
        "first_tokens_late",
        (
            ('tokenflow_ttft_seconds_bucket{class="reading",le="10.0"}', "0x60"),
            ('tokenflow_ttft_seconds_bucket{class="reading",le="20.0"}', _ONE_BY_ONE),
            ('tokenflow_ttft_seconds_bucket{class="reading",le="+Inf"}', _ONE_BY_ONE),
        ),
    ),
    Alert(
        "TokenFlowOverload",
        "tokenflow_overload == 1",
        "5m",
        _WARNING,
        "Readers want more than the engine can make: requests are admitted first come, first served.",
        "overload",
        (("tokenflow_overload", _STEADY_1),),
    ),
    Alert(
        "TokenFlowTransfersBehind",
        "tokenflow_kv_transfer_queue_bytes / rate(tokenflow_kv_transfer_bytes_total[5m]) > 30",
        "5m",
        _WARNING,
        "More KV is queued between device and host than moves in 30 s.",
        "transfers_behind",
        (
            ('tokenflow_kv_transfer_queue_bytes{direction="d2h"}', "1000000x60"),
            ('tokenflow_kv_transfer_bytes_total{direction="d2h"}', "0+600x60"),
        ),
    ),
    Alert(
        "TokenFlowPolicyFaults",
        "increase(tokenflow_policy_faults_total[15m]) > 0",
        "0m",
        _WARNING,
        "The plugin has caught exceptions of its own; after twenty it turns itself off.",
        "policy_faults",
        (("tokenflow_policy_faults_total", "0x20 1x40"),),
    ),
    Alert(
        "TokenFlowGpuHot",
        "tokenflow_gpu_temperature_celsius > 88",
        "5m",
        _WARNING,
        "A GPU is near the temperature at which it lowers its clock.",
        "gpu_hot",
        (('tokenflow_gpu_temperature_celsius{gpu="0"}', "91x60"),),
    ),
    Alert(
        "TokenFlowGpuThrottled",
        'tokenflow_gpu_throttled{reason!="power_cap"} == 1',
        "5m",
        _WARNING,
        "A GPU runs below its full clock, for heat or for its power supply.",
        "gpu_throttled",
        (('tokenflow_gpu_throttled{gpu="0",reason="thermal"}', _STEADY_1),),
    ),
    Alert(
        "TokenFlowGpuEcc",
        'increase(tokenflow_gpu_ecc_errors_total{type="uncorrected"}[1h]) > 0',
        "0m",
        Severity.CRITICAL,
        "A GPU has met memory errors that it could not correct.",
        "gpu_ecc",
        (('tokenflow_gpu_ecc_errors_total{gpu="0",type="uncorrected"}', "0x20 1x40"),),
    ),
    Alert(
        "TokenFlowGpuPcieNarrow",
        "tokenflow_gpu_pcie_width < tokenflow_gpu_pcie_width_max",
        "15m",
        _WARNING,
        "A GPU has fewer PCIe lanes than it could have: KV moves slower than the profile says.",
        "gpu_pcie_narrow",
        (
            ('tokenflow_gpu_pcie_width{gpu="0"}', "8x60"),
            ('tokenflow_gpu_pcie_width_max{gpu="0"}', "16x60"),
        ),
    ),
)
ALERTS: tuple[Alert, ...] = (*map(_of_alarm, AlarmKind), *_OF_THE_PAST)
