"""The tables of docs/evaluation.md as Markdown."""

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from evaluation_setups import Case, Table
from tokenflow.sim.spread import spread

Run = dict[str, Any]

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
_STOCK = ("fcfs", "chunked")


def render_table(table: Table, results: dict[str, Run]) -> str:
    """A section: text, one table over all cases, how ours stands to the others, and the command lines."""
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
        lines += _rows(case, results[case.title]["document"]["runs"], has_paper)
    if table.is_comparison:
        lines += ["", *_comparison(there, results)]
    lines += ["", "```", *(shlex.join(["tfctl", *results[case.title]["command"]]) for case in there), "```", ""]
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


def _comparison(cases: Sequence[Case], results: dict[str, Run]) -> list[str]:
    """`tokenflow` against the better of `fcfs` and `chunked`, and against whoever else is there, means over seeds."""
    lines = [
        "`tokenflow` against the better of `fcfs` and `chunked`, and the best of all others on one GPU:", "",
        "| set-up | demand/Γ | p99 TTFT to `fcfs` | to `chunked` | effective | raw | stall s | least of others' | QoE |"
        " best of others' |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for case in cases:
        runs = results[case.title]["document"]["runs"]
        means = {policy: _means(runs, policy) for policy in dict.fromkeys(run["policy"] for run in runs)}
        if "tokenflow" not in means:
            continue
        ours = means["tokenflow"]
        stock = [means[policy] for policy in _STOCK if policy in means]
        others = {name: one for name, one in means.items() if name not in ("tokenflow", "disaggregated")}
        if not stock:
            continue
        ttfts = [f"{ours['p99'] / means[policy]['p99'] - 1.0:+.1%}" if policy in means else "" for policy in _STOCK]
        effective = ours["effective"] / max(one["effective"] for one in stock)
        raw = ours["raw"] / max(one["raw"] for one in stock)
        least_stall = min(others, key=lambda name: others[name]["stall"])
        best_qoe = max(others, key=lambda name: others[name]["qoe"])
        cells = [
            case.title,
            f"{ours['demand']:.2f}",
            *ttfts,
            f"{effective:.2f} x",
            f"{raw:.2f} x",
            f"{ours['stall']:.0f}",
            f"{others[least_stall]['stall']:.0f} ({least_stall})",
            f"{ours['qoe']:.3f}",
            f"{others[best_qoe]['qoe']:.3f} ({best_qoe})",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _means(runs: Sequence[Run], policy: str) -> dict[str, float]:
    theirs = [run for run in runs if run["policy"] == policy]

    def mean(value: Callable[[Run], float]) -> float:
        return sum(map(value, theirs)) / len(theirs)

    return {
        "demand": mean(lambda run: run["demand_ratio_max"]),
        "p99": mean(lambda run: run["ttft_s"]["p99"] or 0.0),
        "effective": mean(lambda run: run["effective_tok_s"]),
        "raw": mean(lambda run: run["raw_tok_s"]),
        "stall": mean(lambda run: run["stall_s_total"]),
        "qoe": mean(lambda run: run["qoe_mean"] or 0.0),
    }


def _cell(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    found = spread(values)
    return f"{found.mean:.{digits}f}" + ("" if found.half_width is None else f" ±{found.half_width:.{digits}f}")
