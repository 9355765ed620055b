"""A line chart as SVG, without script and without anything from outside the page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 380, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 8, 24, 30
_TICKS = 4
_KEY_WIDTH, _LETTER_WIDTH = 28.0, 5.5  # of a legend: the stroke with its gaps, and what a letter takes
_ROUND = (1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


@dataclass(frozen=True, slots=True)
class Line:
    """A named line; `style` is a CSS class of the page. Points with a y of None are gaps."""

    name: str
    style: str
    points: Sequence[tuple[float, float | None]]


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`, with its unit."""

    label: str
    high: float
    low: float = 0.0


def line_chart(title: str, lines: Sequence[Line], x: Axis, y: Axis) -> str:
    """One `<svg>`. Everything beyond the axes is cut to them."""
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text class="title" x="{_LEFT}" y="14">{escape(f"{title}, {y.label}")}</text>',
    ]
    parts += _grid(x, y)
    for line in lines:
        parts += _strokes(line, x, y)
    parts += _legend(lines)
    parts.append("</svg>")
    return "".join(parts)


def nice_ceiling(value: float) -> float:
    """The least round number that is not below `value` and that four ticks divide well; 1 for nothing."""
    if not value > 0.0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _ROUND if step * power >= value * (1.0 - 1e-12))


def _x(value: float, axis: Axis) -> float:
    share = (value - axis.low) / (axis.high - axis.low)
    return _LEFT + min(max(share, 0.0), 1.0) * (WIDTH - _LEFT - _RIGHT)


def _y(value: float, axis: Axis) -> float:
    share = (value - axis.low) / (axis.high - axis.low)
    return HEIGHT - _BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - _TOP - _BOTTOM)


def _grid(x: Axis, y: Axis) -> list[str]:
    parts = []
    bottom = HEIGHT - _BOTTOM + 12
    for tick in range(_TICKS + 1):
        share = tick / _TICKS
        value_y = y.low + share * (y.high - y.low)
        value_x = x.low + share * (x.high - x.low)
        at_y, at_x = _y(value_y, y), _x(value_x, x)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at_y:.1f}" y2="{at_y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{_LEFT - 4}" y="{at_y + 3:.1f}" text-anchor="end">{_short(value_y)}</text>'
        )
        parts.append(f'<text class="tick" x="{at_x:.1f}" y="{bottom}" text-anchor="middle">{_short(value_x)}</text>')
    parts.append(f'<text class="tick" x="{WIDTH - _RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{escape(x.label)}</text>')
    return parts


def _strokes(line: Line, x: Axis, y: Axis) -> list[str]:
    parts, stroke = [], []
    for at_x, at_y in [*line.points, (0.0, None)]:
        if at_y is not None:
            stroke.append(f"{_x(at_x, x):.1f},{_y(at_y, y):.1f}")
        elif stroke:
            parts.append(f'<polyline class="{line.style}" points="{" ".join(stroke)}"/>')
            stroke = []
    return parts


def _legend(lines: Sequence[Line]) -> list[str]:
    """Beside the title, where no line can cross it."""
    if len(lines) < 2:
        return []
    widths = [_KEY_WIDTH + _LETTER_WIDTH * len(line.name) for line in lines]
    parts, at = [], WIDTH - _RIGHT - sum(widths)
    for line, width in zip(lines, widths, strict=True):
        parts.append(f'<line class="{line.style}" x1="{at:.1f}" x2="{at + 14:.1f}" y1="11" y2="11"/>')
        parts.append(f'<text class="tick" x="{at + 18:.1f}" y="14">{escape(line.name)}</text>')
        at += width
    return parts


def _short(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 10_000 else f"{value:g}"
