"""The report of `tfctl simulate --html`: one file, no script, nothing from outside; the policies side by side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from tokenflow.sim.document import SimRun, SimulateDocument
from tokenflow.sim.experiment import Outcome
from tokenflow.sim.records import Sample
from tokenflow.sim.spread import spread
from tokenflow.sim.svg_chart import Axis, Line, line_chart, nice_ceiling

_CURVE_POINTS = 100
_STYLE = """
:root{color-scheme:light dark;--ink:#1c1f24;--faint:#6b7280;--grid:#d9dce1;--paper:#fff;--a:#0b6bcb;
--b:#c2410c;--c:#15803d}
@media (prefers-color-scheme:dark){:root{--ink:#e6e8eb;--faint:#9aa1ab;--grid:#343a43;--paper:#14171b;--a:#5aa9ff;
--b:#ff9257;--c:#5fd38d}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2rem auto;
max-width:110rem;padding:0 1rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}
th,td{padding:.2rem .7rem;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th:first-child,td:first-child{text-align:left}
.side{display:grid;grid-auto-flow:column;grid-auto-columns:minmax(22rem,1fr);gap:1.2rem;overflow-x:auto}
svg{width:100%;height:auto;display:block;margin:.4rem 0}
polyline,line.a,line.b,line.c{fill:none;stroke-width:1.6}
.a{stroke:var(--a)}.b{stroke:var(--b)}.c{stroke:var(--c)}
.grid{stroke:var(--grid);stroke-width:.6}
svg text{fill:var(--faint);font-size:9.5px}
svg .title{fill:var(--ink);font-size:12px;font-weight:600}
p.note{color:var(--faint);max-width:60rem}
"""


@dataclass(frozen=True, slots=True)
class Plots:
    """What the plots of one run need; the times of every token are gone."""

    policy: str
    seed: int
    capacity_tok_s: float
    samples: Sequence[Sample]
    ttfts_s: Sequence[float]  # quantiles, ascending
    stalls_s: Sequence[float]

    @classmethod
    def of(cls, outcome: Outcome) -> "Plots":
        figures = [record.figures for record in outcome.records]
        return cls(
            outcome.policy,
            outcome.seed,
            outcome.capacity_tok_s,
            outcome.samples,
            _quantiles([one.ttft_s for one in figures if one.ttft_s is not None]),
            _quantiles([one.stall_s for one in figures if one.has_reader]),
        )


def html_report(document: SimulateDocument, plots: Sequence[Plots]) -> str:
    """The page. Of several seeds the first one is plotted; the table has all."""
    first = [one for one in plots if one.seed == plots[0].seed]
    columns = "".join(f"<section><h2>{escape(one.policy)}</h2>{_charts(one, first)}</section>" for one in first)
    engine, workload = document.engine, document.workload
    seeds = sorted({run.seed for run in document.runs})
    facts = (
        f"{engine.kv_tokens} KV tokens, {engine.max_running} slots, {engine.host_tokens} tokens of host memory, "
        f"link {engine.h2d_bytes_s / 1e9:g} GB/s to the device and {engine.d2h_bytes_s / 1e9:g} GB/s from it. "
        f"Arrivals {workload.arrivals}, input {workload.input_tokens}, output {workload.output_tokens}, "
        f"rates {workload.rates or 'none'}; seeds {', '.join(map(str, seeds))}."
    )
    title = f"{engine.model} on {engine.gpu}: {', '.join(one.policy for one in first)}"
    tuned = ", ".join(f"{key}={value}" for key, value in document.tunables.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
        f"<h1>{escape(title)}</h1><p>{escape(facts)}</p>"
        f'<p class="note">Simulated. Step times: {escape(engine.performance_source)}.'
        f"{' Tuned: ' + escape(tuned) + '.' if tuned else ''} Version {escape(document.version)}.</p>"
        f"{_table(document.runs)}"
        f'<p class="note">Plots are of seed {plots[0].seed}. Runways are of streams that have begun. Capacity '
        "is that of the performance model at the workload's mean lengths; demand is the sum of the rates of all live "
        "requests.</p>"
        f'<div class="side">{columns}</div></body></html>\n'
    )


_TABLE: tuple[tuple[str, int, Callable[[SimRun], float | None]], ...] = (
    ("TTFT mean s", 2, lambda run: run.ttft_s.mean),
    ("p50 s", 2, lambda run: run.ttft_s.p50),
    ("p99 s", 2, lambda run: run.ttft_s.p99),
    ("raw tok/s", 0, lambda run: run.raw_tok_s),
    ("effective tok/s", 0, lambda run: run.effective_tok_s),
    ("authors' effective", 0, lambda run: run.effective_tok_s_author),
    ("QoE", 3, lambda run: run.qoe_mean),
    ("stall s", 1, lambda run: run.stall_s_total),
    ("stalled requests", 0, lambda run: float(run.stalled_request_count)),
    ("idle p99 s", 2, lambda run: run.max_idle_s_p99),
    ("goodput", 3, lambda run: run.goodput_ratio),
    ("pauses", 0, lambda run: float(run.preemption_count)),
    ("recomputed", 0, lambda run: float(run.recompute_count)),
    ("makespan s", 1, lambda run: run.makespan_s),
    ("demand / capacity", 2, lambda run: run.demand_ratio_max),
)


def _table(runs: Sequence[SimRun]) -> str:
    by_policy: dict[str, list[SimRun]] = {}
    for run in runs:
        by_policy.setdefault(run.policy, []).append(run)
    head = "".join(f"<th>{escape(title)}</th>" for title, _, _ in _TABLE)
    rows = []
    for policy, theirs in by_policy.items():
        cells = []
        for _, digits, value in _TABLE:
            values = [found for run in theirs if (found := value(run)) is not None]
            cells.append(f"<td>{_cell(values, digits)}</td>")
        rows.append(f"<tr><td>{escape(policy)}</td>{''.join(cells)}</tr>")
    return f'<div class="wide"><table><tr><th>policy</th>{head}</tr>{"".join(rows)}</table></div>'


def _cell(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    found = spread(values)
    width = "" if found.half_width is None else f" ± {found.half_width:.{digits}f}"
    return f"{found.mean:.{digits}f}{width}"


def _charts(one: Plots, all_of_them: Sequence[Plots]) -> str:
    """All policies' charts have the same axes."""

    def most(value: Callable[[Sample], float | None]) -> float:
        found = [taken for plot in all_of_them for sample in plot.samples if (taken := value(sample)) is not None]
        return max(found, default=0.0)

    def line(name: str, style: str, value: Callable[[Sample], float | None]) -> Line:
        return Line(name, style, [(sample.time_s, value(sample)) for sample in one.samples])

    time = Axis("s", nice_ceiling(most(lambda sample: sample.time_s)))
    counts = nice_ceiling(most(lambda s: max(s.running_count, s.waiting_count, s.paused_count)))
    runway = nice_ceiling(min(most(lambda s: s.median_runway_s), 120.0))
    demand = nice_ceiling(max(most(lambda s: s.demand_tok_s), *(plot.capacity_tok_s for plot in all_of_them)))
    memory = nice_ceiling(most(lambda s: float(max(s.kv_used_tokens, s.host_used_tokens))))
    level = [(time.low, one.capacity_tok_s), (time.high, one.capacity_tok_s)]
    charts = [
        line_chart(
            "Runway",
            [line("median", "a", lambda s: s.median_runway_s), line("least", "b", lambda s: s.least_runway_s)],
            time,
            Axis("s", runway),
        ),
        line_chart(
            "Requests",
            [
                line("running", "a", lambda s: s.running_count),
                line("waiting", "b", lambda s: s.waiting_count),
                line("paused", "c", lambda s: s.paused_count),
            ],
            time,
            Axis("count", counts),
        ),
        line_chart(
            "Demand and capacity",
            [line("demand", "b", lambda s: s.demand_tok_s), Line("capacity", "a", level)],
            time,
            Axis("tok/s", demand),
        ),
        line_chart(
            "KV memory",
            [line("device", "a", lambda s: s.kv_used_tokens), line("host", "c", lambda s: s.host_used_tokens)],
            time,
            Axis("tokens", memory),
        ),
        _distribution("Time to first token", one.ttfts_s, [plot.ttfts_s for plot in all_of_them]),
        _distribution("Stall of each reader", one.stalls_s, [plot.stalls_s for plot in all_of_them]),
    ]
    return "".join(charts)


def _distribution(title: str, quantiles: Sequence[float], of_all: Sequence[Sequence[float]]) -> str:
    most = nice_ceiling(max((values[-1] for values in of_all if values), default=0.0))
    last = max(len(quantiles) - 1, 1)
    points = [(value, index / last * 100.0) for index, value in enumerate(quantiles)]
    return line_chart(title, [Line("requests", "a", points)], Axis("s", most), Axis("% of requests", 100.0))


def _quantiles(values: Sequence[float]) -> list[float]:
    return np.quantile(values, np.linspace(0.0, 1.0, _CURVE_POINTS + 1)).tolist() if values else []
