"""Below the table of `tfctl simulate` with several seeds: the first policy against each other one, seed by seed.

All policies see the same requests, so what the seeds share drops out, and differences show that the table's own
intervals hide.
"""

from collections.abc import Callable, Sequence

from tfctl.output import Look, Role
from tokenflow.sim.document import SimRun, SimulateDocument
from tokenflow.sim.spread import Spread, paired_spread

_COLUMNS: tuple[tuple[str, int, Callable[[SimRun], float | None]], ...] = (
    ("p99 TTFT s", 2, lambda run: run.ttft_s.p99),
    ("raw tok/s", 0, lambda run: run.raw_tok_s),
    ("effective", 0, lambda run: run.effective_tok_s),
    ("QoE", 3, lambda run: run.qoe_mean),
    ("stall s", 1, lambda run: run.stall_s_total),
)
_GAP = 2


def difference_lines(document: SimulateDocument, look: Look) -> list[str]:
    """Nothing for one seed or one policy."""
    by_policy: dict[str, list[SimRun]] = {}
    for run in document.runs:
        by_policy.setdefault(run.policy, []).append(run)
    first, *others = by_policy
    if not others or len(by_policy[first]) < 2:
        return []
    title = f"{first} less"
    rows = [[title, *(name for name, _, _ in _COLUMNS)]]
    for other in others:
        cells = [
            _cell(_difference(by_policy[first], by_policy[other], value), digits, look) for _, digits, value in _COLUMNS
        ]
        rows.append([other, *cells])
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = [
        row[0].ljust(widths[0])
        + "".join(" " * _GAP + cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]
    lines[0] = look.paint(lines[0], Role.FAINT)
    return ["", *lines, "seed by seed, with 95 % intervals; * where zero lies outside"]


def _difference(
    ours: Sequence[SimRun], theirs: Sequence[SimRun], value: Callable[[SimRun], float | None]
) -> Spread | None:
    """None where a run has no such figure."""
    mine, yours = [value(run) for run in ours], [value(run) for run in theirs]
    assert [run.seed for run in ours] == [run.seed for run in theirs]
    pairs = [(one, other) for one, other in zip(mine, yours, strict=True) if one is not None and other is not None]
    if len(pairs) < len(mine):
        return None
    return paired_spread([one for one, _ in pairs], [other for _, other in pairs])


def _cell(found: Spread | None, digits: int, look: Look) -> str:
    if found is None or found.half_width is None:
        return "–" if look.unicode else "-"
    sign = "±" if look.unicode else "+-"
    mark = "*" if abs(found.mean) > found.half_width else " "
    return f"{found.mean:+.{digits}f} {sign}{found.half_width:.{digits}f}{mark}"
