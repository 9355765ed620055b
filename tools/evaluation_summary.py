"""What comes out, as figures: the goals of the project against the paper's set-ups (docs/evaluation.md, first table).

"No worse" allows for 1 % of a figure and 0.005 of QoE; stalls under a second in all are none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from evaluation_figures import STOCK, Means, Run, change, means_by_policy, others_of
from evaluation_setups import Case, Table

RunsOf = Callable[[Case], list[Run]]
PAPER_TABLES = ("rtx4090", "h200")  # those that hold the paper's controlled set-ups
_LEAST_EFFECTIVE_RATIO, _LEAST_RAW_RATIO, _MOST_TTFT_RATIO = 1.82, 0.99, 0.2
_TOLERANCE_RATIO, _QOE_TOLERANCE, _NO_STALL_S = 0.01, 0.005, 1.0
_RIVALS = ("andes", "mlfq", "paper", "guide")
_TTFTS = ("P99 TTFT to `fcfs`", "to `chunked`")
_OTHERS = "best of others'"
_YES, _NO = "yes", "**no**"


@dataclass(frozen=True, slots=True)
class _Standing:
    """One set-up: ours, everybody else's, and the stock schedulers'."""

    title: str
    is_burst: bool
    ours: Means
    others: dict[str, Means]
    stock: dict[str, Means]

    @property
    def effective_ratio(self) -> float:
        return self.ours.effective_tok_s / max(one.effective_tok_s for one in self.stock.values())

    @property
    def raw_ratio(self) -> float:
        return self.ours.raw_tok_s / max(one.raw_tok_s for one in self.stock.values())

    def ttft_ratio(self, name: str) -> float:
        return self.ours.ttft_p99_s / max(self.stock[name].ttft_p99_s, 1e-9)


def render_summary(tables: Sequence[Table], runs_of: RunsOf) -> str:
    """Markdown. Empty without the paper's set-ups."""
    found = [
        _standing(table, case, means)
        for table in tables
        if table.key in PAPER_TABLES
        for case in table.cases
        if {"tokenflow", *STOCK} <= (means := means_by_policy(runs_of(case))).keys()
    ]
    if not found:
        return ""
    below = [one for one in found if one.ours.demand_ratio < 1.0 and not one.others.keys().isdisjoint(_RIVALS)]
    above = [one for one in found if one.ours.demand_ratio >= 1.0]
    parts = [_against_stock(found)]
    if below:
        parts.append(_below(below))
    if above:
        parts.append(_above(above))
    return "\n\n".join(parts) + "\n"


def _standing(table: Table, case: Case, means: dict[str, Means]) -> _Standing:
    gpu = table.key.upper().replace("RTX", "RTX ")
    return _Standing(
        f"{gpu} {case.title}",
        any(word.startswith("burst:") for word in case.arguments),
        means["tokenflow"],
        others_of(means),
        {name: means[name] for name in STOCK},
    )


def _against_stock(found: Sequence[_Standing]) -> str:
    """Every set-up against what the paper has at best, and which of either kind reach the whole goal."""
    lines = [
        "Against `fcfs` and `chunked` (effective and raw throughput: the better of them). Goal, for the best burst and "
        "the best Poisson set-up: P99 TTFT 80 % lower than both, effective throughput 1.82 times, raw throughput 0.99 "
        "times, stalls no worse than the best other's.",
        "",
        *_head("set-up", "demand/Γ", *_TTFTS, "effective", "raw", "stall s", "least of others'", "goal"),
        "| paper's best burst |  | -80.2% |  | 1.53 x | similar |  |  |  |",
        "| paper's best Poisson |  |  |  | 1.82 x | similar |  |  |  |",
    ]
    for one in found:
        least_name, least = _least_stall(one)
        missed = _missed(one)
        cells = [
            one.title, f"{one.ours.demand_ratio:.2f}",
            *(change(one.ours.ttft_p99_s, one.stock[name].ttft_p99_s) for name in STOCK),
            f"{one.effective_ratio:.2f} x", f"{one.raw_ratio:.2f} x", f"{one.ours.stall_s:.0f}",
            f"{least:.0f} ({least_name})", f"{_NO}: {', '.join(missed)}" if missed else _YES,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for kind, is_burst in (("bursts", True), ("Poisson set-ups", False)):
        of_kind = [one for one in found if one.is_burst == is_burst]
        whole = [one.title for one in of_kind if not _missed(one)]
        if of_kind:
            lines.append(f"Of the {len(of_kind)} {kind} the whole goal is reached by {', '.join(whole) or 'none'}.")
    return "\n".join(lines)


def _missed(one: _Standing) -> list[str]:
    """Which parts of the goal against the stock schedulers."""
    goals = {
        "effective": one.effective_ratio >= _LEAST_EFFECTIVE_RATIO,
        "raw": one.raw_ratio >= _LEAST_RAW_RATIO,
        "TTFT": all(one.ttft_ratio(stock) <= _MOST_TTFT_RATIO for stock in STOCK),
        "stalls": _is_no_more(one.ours.stall_s, _least_stall(one)[1]),
    }
    return [name for name, is_met in goals.items() if not is_met]


def _below(found: Sequence[_Standing]) -> str:
    lines = [
        f"Demand under Γ. Goal: no worse than any of {', '.join(f'`{name}`' for name in _RIVALS)} on QoE, P99 TTFT and "
        "stalls.",
        "",
        *_head("set-up", "demand/Γ", "QoE", _OTHERS, "goal", "P99 TTFT s", _OTHERS, "goal", "stall s", _OTHERS, "goal"),
    ]
    for one in (
        replace(one, others={name: one.others[name] for name in _RIVALS if name in one.others}) for one in found
    ):
        fastest = min(one.others, key=lambda name: one.others[name].ttft_p99_s)
        ttft_s = one.others[fastest].ttft_p99_s
        cells = [
            one.title, f"{one.ours.demand_ratio:.2f}", *_qoe_cells(one),
            f"{one.ours.ttft_p99_s:.2f}", f"{ttft_s:.2f} ({fastest})",
            _word(_is_no_more(one.ours.ttft_p99_s, ttft_s, none=0.0)), *_stall_cells(one),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _above(found: Sequence[_Standing]) -> str:
    lines = [
        "Demand over Γ. Goal: no worse than the best other on QoE and stalls, more effective throughput than `fcfs` "
        "and `chunked`. The best on QoE and the best on stalls are two that can't be had at once; the last column says "
        "who is better on both.",
        "",
        *_head(
            "set-up",
            "demand/Γ",
            "QoE",
            _OTHERS,
            "goal",
            "stall s",
            _OTHERS,
            "goal",
            "effective",
            "goal",
            "better on both",
        ),
    ]
    for one in found:
        cells = [
            one.title, f"{one.ours.demand_ratio:.2f}", *_qoe_cells(one), *_stall_cells(one),
            f"{one.effective_ratio:.2f} x", _word(one.effective_ratio > 1.0), _better_on_both(one),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _better_on_both(one: _Standing) -> str:
    """Who has the higher QoE and the fewer stalls."""
    names = [
        name
        for name, other in one.others.items()
        if other.qoe > one.ours.qoe + _QOE_TOLERANCE and not _is_no_more(one.ours.stall_s, other.stall_s)
    ]
    return ", ".join(names) or "nobody"


def _qoe_cells(one: _Standing) -> tuple[str, str, str]:
    best = max(one.others, key=lambda name: one.others[name].qoe)
    is_met = one.ours.qoe >= one.others[best].qoe - _QOE_TOLERANCE
    return f"{one.ours.qoe:.3f}", f"{one.others[best].qoe:.3f} ({best})", _word(is_met)


def _stall_cells(one: _Standing) -> tuple[str, str, str]:
    name, least = _least_stall(one)
    return f"{one.ours.stall_s:.0f}", f"{least:.0f} ({name})", _word(_is_no_more(one.ours.stall_s, least))


def _least_stall(one: _Standing) -> tuple[str, float]:
    name = min(one.others, key=lambda name: one.others[name].stall_s)
    return name, one.others[name].stall_s


def _is_no_more(ours: float, best: float, none: float = _NO_STALL_S) -> bool:
    return ours <= max(best * (1.0 + _TOLERANCE_RATIO), none)


def _head(*titles: str) -> tuple[str, str]:
    return f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)


def _word(is_met: bool) -> str:
    return _YES if is_met else _NO
