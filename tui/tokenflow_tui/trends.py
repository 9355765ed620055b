"""The last minutes as lines: first tokens, stalls, pauses, tokens made. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tfctl import formats
from tfctl.output import Look, Role
from tfctl.views.cells import Cell
from tokenflow_tui.moment import Sample

SPAN_S = 120.0  # what a line covers
_BLOCKS = "▁▂▃▄▅▆▇█"
_PLAIN_BLOCKS = "_.-=*#"
_LABEL_CELLS = 9
_VALUE_CELLS = 13
Stamped = tuple[float, Sample]


@dataclass(frozen=True, slots=True)
class Trend:
    """One line: `values` by bucket of time, None where nothing is known; `now` is the last one in words."""

    label: str
    values: list[float | None]
    now: str
    role: Role = Role.PLAIN


def trends_of(samples: Sequence[Stamped], bucket_count: int, look: Look) -> list[Trend]:
    """The four lines over the `SPAN_S` seconds before the last sample."""
    if not samples:
        return []
    end_s = samples[-1][0]
    kept = [stamped for stamped in samples if stamped[0] >= end_s - SPAN_S - 1.0]
    ttft = [(at_s, sample.ttft_p99_s) for at_s, sample in kept]
    made = [(at_s, sample.raw_tok_s) for at_s, sample in kept]
    stalled = _rates([(at_s, sample.stall_s_total) for at_s, sample in kept])
    pauses = _rates([(at_s, float(sample.preemption_total)) for at_s, sample in kept])
    window_s = max(kept[-1][0] - kept[0][0], 1e-9)
    pause_count = sum(rate * length_s for _, rate, length_s in pauses)
    stall_s = sum(rate * length_s for _, rate, length_s in stalled)
    now = kept[-1][1]

    def buckets(points: Sequence[tuple[float, float | None]]) -> list[float | None]:
        return _bucketed(points, end_s, bucket_count)

    span = formats.seconds(min(window_s, SPAN_S), unicode=look.unicode)
    return [
        Trend("TTFT p99", buckets(ttft), formats.seconds(now.ttft_p99_s, unicode=look.unicode)),
        Trend(
            "stalls",
            buckets([(at_s, rate) for at_s, rate, _ in stalled]),
            f"{formats.seconds(stall_s)} in {span}",
            Role.WARN if stall_s > 0 else Role.PLAIN,
        ),
        Trend("pauses", buckets([(at_s, rate) for at_s, rate, _ in pauses]), f"{round(pause_count)} in {span}"),
        Trend("made", buckets(made), formats.rate(now.raw_tok_s)),
    ]


def trend_lines(samples: Sequence[Stamped], width: int, height: int, look: Look) -> list[list[Cell]]:
    """The four side by side or below each other, `height` lines at most."""
    height = max(min(height, 4), 1)
    columns = -(-4 // height)
    cell_width = (width - 2 * (columns - 1)) // columns
    bar_cells = max(cell_width - _LABEL_CELLS - _VALUE_CELLS - 1, 4)
    trends = trends_of(samples, bar_cells, look)
    lines: list[list[Cell]] = []
    for row in range(height):
        line: list[Cell] = []
        for trend in trends[row * columns : (row + 1) * columns]:
            spark = sparkline(trend.values, bar_cells, unicode=look.unicode)
            line.append(Cell(trend.label.ljust(_LABEL_CELLS), Role.FAINT))
            line.append(Cell(spark + " ", trend.role, is_joined=True))
            line.append(Cell(trend.now.ljust(_VALUE_CELLS), trend.role, is_joined=True))
        lines.append(line)
    return lines


def sparkline(values: Sequence[float | None], width: int, *, unicode: bool = True) -> str:
    """From zero up to the greatest value; a blank where nothing is known."""
    blocks = _BLOCKS if unicode else _PLAIN_BLOCKS
    greatest = max((value for value in values if value is not None), default=0.0)
    text = ""
    for value in values[-width:]:
        if value is None:
            text += " "
        elif greatest <= 0 or value <= 0:
            text += blocks[0]
        else:
            text += blocks[min(1 + int(value / greatest * (len(blocks) - 1)), len(blocks) - 1)]
    return text.rjust(width)


def _rates(points: Sequence[tuple[float, float]]) -> list[tuple[float, float, float]]:
    """(when, growth per second, over how many seconds) of a total; one that falls has begun anew with its engine."""
    rates = []
    for (before_s, before), (at_s, total) in pairwise(points):
        length_s = at_s - before_s
        if length_s > 0:
            rates.append((at_s, max(total - before, 0.0) / length_s, length_s))
    return rates


def _bucketed(points: Sequence[tuple[float, float | None]], end_s: float, count: int) -> list[float | None]:
    """The greatest value in each of `count` equal parts of the span: a short peak stays visible."""
    found: list[float | None] = [None] * count
    for at_s, value in points:
        index = count - 1 - int((end_s - at_s) / SPAN_S * count)
        if value is not None and 0 <= index < count:
            held = found[index]
            found[index] = value if held is None else max(held, value)
    last: float | None = None
    for index, value in enumerate(found):
        if value is None:
            found[index] = last  # looks are farther apart than buckets
        else:
            last = value
    return found
