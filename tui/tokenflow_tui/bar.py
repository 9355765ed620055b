"""The line below the table: what is filtered, and where in time the view stands. Pure."""

from datetime import datetime

from tfctl import formats
from tfctl.output import Look, Role
from tfctl.views.cells import Cell


def time_line(first_s: float, at_s: float, last_s: float, what: str, width: int, look: Look) -> list[Cell]:
    """`what` (past, replay), then a bar from the first moment to the last one with the present place marked."""
    moment = datetime.fromtimestamp(at_s).astimezone().strftime("%H:%M:%S")
    left = f"{what} {moment}"
    right = f"{formats.seconds(at_s - first_s)} of {formats.seconds(last_s - first_s)}"
    bar_cells = max(width - len(left) - len(right) - 4, 8)
    at = round((at_s - first_s) / max(last_s - first_s, 1e-9) * (bar_cells - 1))
    done, mark, rest = ("━", "●", "─") if look.unicode else ("=", "O", "-")
    return [
        Cell(left, Role.STRONG),
        Cell(done * at + mark + rest * (bar_cells - 1 - at), Role.WARN),
        Cell(right, Role.FAINT),
    ]


def filter_cell(wanted: str, shown_count: int, row_count: int) -> Cell:
    return Cell(f"filter /{wanted}: {shown_count} of {row_count} (Esc clears)", Role.WARN)
