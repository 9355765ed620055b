"""The table of `tfctl simulate`: one row a policy, means over seeds with their 95 % intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from tfctl.output import Look, Role
from tfctl.views.simulate_differences import difference_lines
from tokenflow.sim.document import SimRun, SimulateDocument
from tokenflow.sim.spread import spread

_GAP = 2


@dataclass(frozen=True, slots=True)
class _Column:
    """`keep` 0 is never dropped; where the width is short, the highest goes first."""

    title: str
    digits: int
    keep: int
    value: Callable[[SimRun], float | None]


_COLUMNS = (
    _Column("TTFT mean s", 2, 4, lambda run: run.ttft_s.mean),
    _Column("p50 s", 2, 7, lambda run: run.ttft_s.p50),
    _Column("p99 s", 2, 0, lambda run: run.ttft_s.p99),
    _Column("raw tok/s", 0, 1, lambda run: run.raw_tok_s),
    _Column("effective", 0, 0, lambda run: run.effective_tok_s),
    _Column("QoE", 3, 0, lambda run: run.qoe_mean),
    _Column("stall s", 1, 0, lambda run: run.stall_s_total),
    _Column("idle p99 s", 2, 6, lambda run: run.max_idle_s_p99),
    _Column("goodput", 3, 8, lambda run: run.goodput_ratio),
    _Column("pauses", 0, 5, lambda run: float(run.preemption_count)),
    _Column("recomputed", 0, 9, lambda run: float(run.recompute_count)),
    _Column("makespan s", 1, 7, lambda run: run.makespan_s),
    _Column("demand/Γ", 2, 3, lambda run: run.demand_ratio_max),
)


def render(document: SimulateDocument, look: Look, *, is_quiet: bool = False) -> list[str]:
    """Lines for people."""
    by_policy: dict[str, list[SimRun]] = {}
    for run in document.runs:
        by_policy.setdefault(run.policy, []).append(run)
    columns = [[column.title, *(_cell(column, runs, look) for runs in by_policy.values())] for column in _COLUMNS]
    if not look.unicode:
        columns = [[cell.replace("Γ", "cap") for cell in cells] for cells in columns]
    names = ["policy", *by_policy]
    kept = _that_fit(columns, max(map(len, names)), look.width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    for cells in [names, *kept]:
        table.add_column(cells[0], justify="left" if cells is names else "right", no_wrap=True)
    for row in range(1, len(names)):
        table.add_row(*(cells[row] for cells in [names, *kept]))
    console = Console(width=_width([names, *kept]) + _GAP, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    if is_quiet:
        return lines
    lines[0] = look.paint(lines[0], Role.FAINT)
    return [*_head(document, look), "", *lines, *_notes(document, look), *difference_lines(document, look)]


def _that_fit(columns: list[list[str]], name_width: int, width: int | None) -> list[list[str]]:
    """All where there is no limit; else without those that can be spared, the least needed first."""
    order = sorted(range(len(columns)), key=lambda index: -_COLUMNS[index].keep)
    kept = set(range(len(columns)))
    for index in order:
        if width is None or name_width + _GAP + _width([columns[one] for one in kept]) <= width:
            break
        if _COLUMNS[index].keep:
            kept.discard(index)
    return [cells for index, cells in enumerate(columns) if index in kept]


def _width(columns: list[list[str]]) -> int:
    return sum(max(map(len, cells)) + _GAP for cells in columns) - _GAP


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
