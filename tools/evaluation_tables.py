"""The tables of docs/evaluation.md as Markdown."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from evaluation_figures import STOCK, Means, Run, change, means_by_policy, others_of
from evaluation_setups import Case, Table
from tokenflow.sim.spread import spread

RunsOf = Callable[[Case], list[Run]]

_COLUMNS: tuple[tuple[str, int, Callable[[Run], float | None]], ...] = (
    ("TTFT mean s", 2, lambda run: run["ttft_s"]["mean"]),
    ("p99 s", 2, lambda run: run["ttft_s"]["p99"]),
    ("raw tok/s", 0, lambda run: run["raw_tok_s"]),
    ("effective", 0, lambda run: run["effective_tok_s"]),
    ("authors'", 0, lambda run: run["effective_tok_s_author"]),
    ("QoE", 3, lambda run: run["qoe_mean"]),
    ("stall s", 0, lambda run: run["stall_s_total"]),
    ("idle p99 s", 1, lambda run: run["max_idle_s_p99"]),
    ("pauses", 0, lambda run: run["preemption_count"]),
    ("recomputed", 0, lambda run: run["recompute_count"]),
    ("makespan s", 1, lambda run: run["makespan_s"]),
)


def render_table(table: Table, runs_of: RunsOf) -> str:
    """A section: text, one table over all cases, how ours stands to the others, and the command lines. Empty without
    a single result."""
    results = {case.title: runs for case in table.cases if (runs := runs_of(case))}
    if not results:
        return ""
    has_paper = any(case.paper for case in table.cases)
    titles = ["set-up", "demand/Γ", "policy", *(title for title, _, _ in _COLUMNS), *(["paper"] if has_paper else [])]
    lines = [
        f"## {table.title}",
        "",
        table.text,
        "",
        "| " + " | ".join(titles) + " |",
        "|---|---|---|" + "---|" * (len(titles) - 3),
    ]
    there = [case for case in table.cases if case.title in results]
    for case in there:
        lines += _rows(case, results[case.title], has_paper)
    if table.is_comparison:
        lines += ["", *_comparison(there, results)]
    lines += ["", "```", *(_command(case, results[case.title]) for case in there), "```", ""]
    return "\n".join(lines)


def _rows(case: Case, runs: Sequence[Run], has_paper: bool) -> list[str]:
    demand = _cell([run["demand_ratio_max"] for run in runs if run["policy"] == runs[0]["policy"]], 2)
    rows = []
    for policy in dict.fromkeys(run["policy"] for run in runs):
        theirs = [run for run in runs if run["policy"] == policy]
        cells = [
            _cell([found for run in theirs if (found := value(run)) is not None], digits)
            for _, digits, value in _COLUMNS
        ]
        first = [case.title, demand] if not rows else ["", ""]
        rows.append("| " + " | ".join([*first, policy, *cells, *([case.paper] if has_paper else [])]) + " |")
    return rows


def _command(case: Case, runs: Sequence[Run]) -> str:
    """What gives these rows: the seeds that were run."""
    seeds = sorted({run["seed"] for run in runs})
    return shlex.join(["tfctl", *replace(case, seeds=seeds).command])


def _comparison(cases: Sequence[Case], results: dict[str, list[Run]]) -> list[str]:
    """`tokenflow` against the better of `fcfs` and `chunked`, and against whoever else is there, means over seeds."""
    lines = [
        "`tokenflow` against the better of `fcfs` and `chunked`, and the best of all others on one GPU:", "",
        "| set-up | demand/Γ | p99 TTFT to `fcfs` | to `chunked` | effective | raw | stall s | least of others' | QoE |"
        " best of others' |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for case in cases:
        means = means_by_policy(results[case.title])
        if "tokenflow" in means and any(name in means for name in STOCK):
            lines.append(f"| {' | '.join(_against(case, means))} |")
    return lines


def _against(case: Case, means: dict[str, Means]) -> list[str]:
    ours, others = means["tokenflow"], others_of(means)
    stock = [means[policy] for policy in STOCK if policy in means]
    ttfts = [change(ours.ttft_p99_s, means[name].ttft_p99_s) if name in means else "" for name in STOCK]
    least_stall = min(others, key=lambda name: others[name].stall_s)
    best_qoe = max(others, key=lambda name: others[name].qoe)
    return [
        case.title,
        f"{ours.demand_ratio:.2f}",
        *ttfts,
        f"{ours.effective_tok_s / max(one.effective_tok_s for one in stock):.2f} x",
        f"{ours.raw_tok_s / max(one.raw_tok_s for one in stock):.2f} x",
        f"{ours.stall_s:.0f}",
        f"{others[least_stall].stall_s:.0f} ({least_stall})",
        f"{ours.qoe:.3f}",
        f"{others[best_qoe].qoe:.3f} ({best_qoe})",
    ]


def _cell(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    found = spread(values)
    return f"{found.mean:.{digits}f}" + ("" if found.half_width is None else f" ±{found.half_width:.{digits}f}")
