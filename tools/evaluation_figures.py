"""Means over seeds, as the comparisons of docs/evaluation.md use them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Run = dict[str, Any]
STOCK = ("fcfs", "chunked")
OTHER_HARDWARE = ("disaggregated",)  # two GPUs


@dataclass(frozen=True, slots=True)
class Means:
    """One policy in one set-up."""

    demand_ratio: float
    ttft_p99_s: float
    effective_tok_s: float
    raw_tok_s: float
    stall_s: float
    qoe: float


def means_by_policy(runs: Sequence[Run]) -> dict[str, Means]:
    """In the order of the runs, over the seeds that all policies have: only those are the same requests for all."""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run["policy"], set()).add(run["seed"])
    shared = set.intersection(*seeds.values()) if seeds else set()
    return {policy: _means([run for run in runs if run["seed"] in shared], policy) for policy in seeds if shared}


def others_of(means: dict[str, Means]) -> dict[str, Means]:
    """All but `tokenflow` that run on one GPU."""
    return {name: one for name, one in means.items() if name not in ("tokenflow", *OTHER_HARDWARE)}


def change(ours: float, theirs: float) -> str:
    """How much more or less ours is; close to -100 % with the digits that tell."""
    ratio = ours / max(theirs, 1e-9) - 1.0
    return f"{ratio:+.2%}" if ratio < -0.99 else f"{ratio:+.1%}"


def _means(runs: Sequence[Run], policy: str) -> Means:
    theirs = [run for run in runs if run["policy"] == policy]

    def mean(value: Callable[[Run], float]) -> float:
        return sum(map(value, theirs)) / len(theirs)

    return Means(
        demand_ratio=mean(lambda run: run["demand_ratio_max"]),
        ttft_p99_s=mean(lambda run: run["ttft_s"]["p99"] or 0.0),
        effective_tok_s=mean(lambda run: run["effective_tok_s"]),
        raw_tok_s=mean(lambda run: run["raw_tok_s"]),
        stall_s=mean(lambda run: run["stall_s_total"]),
        qoe=mean(lambda run: run["qoe_mean"] or 0.0),
    )
