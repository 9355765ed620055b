"""Two settings side by side, over the same looks: for `tfctl tune --compare` and the view's tuning panel."""

from tfctl import formats
from tfctl.documents import Effect
from tfctl.output import Look, Role
from tfctl.views.cells import Cell

_LABEL_CELLS = 30
_VALUE_CELLS = 12


def effect_lines(before: Effect, after: Effect, look: Look) -> list[list[Cell]]:
    """A title, and one line a figure; what differs is bold."""
    rows = [
        ("could be paused, on average", f"{before.safe_mean:.1f}", f"{after.safe_mean:.1f}"),
        ("pauses", str(before.pause_count), str(after.pause_count)),
        ("  for a first token", str(before.first_token_count), str(after.first_token_count)),
        ("  to rescue a reader", str(before.rescue_count), str(after.rescue_count)),
        (
            "least runway left by a pause",
            formats.seconds(before.least_left_s, unicode=look.unicode),
            formats.seconds(after.least_left_s, unicode=look.unicode),
        ),
        ("readers that would run dry", str(before.dry_count), str(after.dry_count)),
    ]
    lines = [_line("", "now", "would be", Role.FAINT)]
    return lines + [_line(label, now, then, Role.PLAIN if now == then else Role.STRONG) for label, now, then in rows]


def value_line(key: str, now: object, then: object) -> list[Cell]:
    return _line(key, value_text(now), value_text(then), Role.STRONG)


def value_text(value: object) -> str:
    """A tunable's value as it is typed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _line(label: str, now: str, then: str, role: Role) -> list[Cell]:
    return [
        Cell(label.ljust(_LABEL_CELLS), Role.FAINT),
        Cell(now.rjust(_VALUE_CELLS), Role.FAINT if role is Role.FAINT else Role.PLAIN, is_joined=True),
        Cell(then.rjust(_VALUE_CELLS), role, is_joined=True),
    ]
