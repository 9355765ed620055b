"""From the lines of `bench/engine.py` to its table: each scheduler against stock in the same round."""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Markdown. A ratio is the median over rounds with the least and the greatest in brackets."""
    rounds: dict[tuple[str, str], dict[int, dict[str, Mapping[str, Any]]]] = {}
    for line in lines:
        key = (str(line["scenario"]), f"{line['demand_ratio']:.2f}")
        rounds.setdefault(key, {}).setdefault(int(line["round"]), {})[str(line["system"])] = line
    text = [
        "| workload, demand over capacity | scheduler | TTFT P99 | of stock's | raw tok/s | of stock's "
        "| effective tok/s | of stock's | stalled time | QoE | rounds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (scenario, ratio), by_round in rounds.items():
        names = list(dict.fromkeys(name for systems in by_round.values() for name in systems))
        for name in sorted(names, key=lambda name: name != "stock"):
            pairs = [
                (systems["stock"], systems[name]) for systems in by_round.values() if {name, "stock"} <= set(systems)
            ]
            text.append(f"| {scenario}, {ratio} | {name} | {' | '.join(_cells(pairs, name))} | {len(pairs)} |")
    return "\n".join(text)


def _cells(pairs: list[tuple[Mapping[str, Any], Mapping[str, Any]]], name: str) -> list[str]:
    def middle(key: str) -> float:
        return statistics.median(float(own[key]) for _, own in pairs)

    def ratio(key: str) -> str:
        if name == "stock":
            return ""
        found = sorted(float(own[key]) / float(stock[key]) for stock, own in pairs)
        return f"{statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})"

    return [
        f"{middle('ttft_p99_s'):.1f} s",
        ratio("ttft_p99_s"),
        f"{middle('raw_tok_s'):.1f}",
        ratio("raw_tok_s"),
        f"{middle('effective_tok_s'):.1f}",
        ratio("effective_tok_s"),
        f"{100 * middle('stall_ratio'):.2f} %",
        f"{middle('qoe_mean'):.2f}",
    ]
