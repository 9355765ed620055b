"""The table of `tfctl simulate`: one row a policy, means over seeds with their 95 % intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from tfctl.output import Look, Role
from tokenflow.sim.document import SimRun, SimulateDocument
from tokenflow.sim.spread import spread

_PIPE_WIDTH = 160


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    digits: int
    value: Callable[[SimRun], float | None]


_COLUMNS = (
    _Column("TTFT mean s", 2, lambda run: run.ttft_s.mean),
    _Column("p50", 2, lambda run: run.ttft_s.p50),
    _Column("p99", 2, lambda run: run.ttft_s.p99),
    _Column("raw tok/s", 0, lambda run: run.raw_tok_s),
    _Column("effective", 0, lambda run: run.effective_tok_s),
    _Column("QoE", 3, lambda run: run.qoe_mean),
    _Column("stall s", 1, lambda run: run.stall_s_total),
    _Column("idle p99 s", 2, lambda run: run.max_idle_s_p99),
    _Column("goodput", 3, lambda run: run.goodput_ratio),
    _Column("pauses", 0, lambda run: float(run.preemption_count)),
    _Column("recomputed", 0, lambda run: float(run.recompute_count)),
    _Column("makespan s", 1, lambda run: run.makespan_s),
    _Column("demand/Γ", 2, lambda run: run.demand_ratio_max),
)


def render(document: SimulateDocument, look: Look, *, is_quiet: bool = False) -> list[str]:
    """Lines for people."""
    by_policy: dict[str, list[SimRun]] = {}
    for run in document.runs:
        by_policy.setdefault(run.policy, []).append(run)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("policy", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column.title if look.unicode else column.title.replace("Γ", "cap"), justify="right")
    for policy, runs in by_policy.items():
        table.add_row(policy, *(_cell(column, runs, look) for column in _COLUMNS))
    console = Console(width=look.width or _PIPE_WIDTH, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    if is_quiet:
        return lines
    lines[0] = look.paint(lines[0], Role.FAINT)
    return [*_head(document, look), "", *lines, *_notes(document, look)]


def _head(document: SimulateDocument, look: Look) -> list[str]:
    engine, workload = document.engine, document.workload
    runs = document.runs
    return [
        look.paint(f"{engine.model} on {engine.gpu}", Role.STRONG)
        + f": {engine.kv_tokens} KV tokens, {engine.max_running} slots, {engine.host_tokens} tokens of host memory",
        look.paint(f"step times: {engine.performance_source}", Role.FAINT),
        f"{runs[0].request_count if runs else 0} requests, {workload.arrivals}; in {workload.input_tokens}, "
        f"out {workload.output_tokens}; read at {workload.rates or 'no rate'} tok/s",
    ]


def _notes(document: SimulateDocument, look: Look) -> list[str]:
    notes = []
    seeds = {run.seed for run in document.runs}
    if len(seeds) > 1:
        notes.append(f"means over {len(seeds)} seeds, with the half width of their 95 % interval")
    worst = max((run.demand_ratio_max for run in document.runs), default=0.0)
    if worst > 1.0:
        notes.append(
            look.paint(f"demand reaches {worst:.1f} times capacity", Role.WARN)
            + ": in overload nobody can serve every reader in time"
        )
    rejected = max((run.rejected_count for run in document.runs), default=0)
    if rejected:
        notes.append(
            look.paint(f"{rejected} requests are larger than the KV pool", Role.WARN) + " and were turned away"
        )
    if any(run.wall_s is not None for run in document.runs):
        speeds = ", ".join(f"{run.policy} {run.speed_ratio or 0:.0f}" for run in document.runs)
        notes.append(f"simulated seconds in a second: {speeds}")
    return ["", *notes] if notes else []


def _cell(column: _Column, runs: Sequence[SimRun], look: Look) -> str:
    values = [value for run in runs if (value := column.value(run)) is not None]
    if not values:
        return "–" if look.unicode else "-"
    found = spread(values)
    text = f"{found.mean:.{column.digits}f}"
    if found.half_width is None:
        return text
    return f"{text} {'±' if look.unicode else '+-'}{found.half_width:.{column.digits}f}"
