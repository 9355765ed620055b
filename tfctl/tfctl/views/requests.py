"""The request table: its columns and cells, shared by `tfctl ps` and the live view, and the plain table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfctl import formats
from tfctl.output import Look, Role
from tfctl.views.cells import Cell, pad, paint_line
from tokenflow.policy.states import Reason, RequestState
from tokenflow.wire import RequestRow

BAR_CELLS = 8
BAR_FULL_S = 10.0  # a runway of ten seconds fills the bar: what is beyond is safe either way
_LOW_S = 2.0
GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """`keep` 0 is never dropped; where the width is short, the highest goes first. `attribute` is what it sorts by."""

    title: str
    attribute: str
    is_right: bool
    keep: int
    cell: Callable[[RequestRow, Look], Cell]
    least_width: int = 0  # for a table that is drawn again and again: its columns must not jump


def runway_role(row: RequestRow) -> Role:
    """Bad once dry, a warning when nearly so. Before the first token, after the end and without a reader there is
    none to lose."""
    if row.runway_s is None or row.ttft_s is None or not row.state.is_live:
        return Role.FAINT
    if row.runway_s <= 0:
        return Role.BAD
    return Role.WARN if row.runway_s < _LOW_S else Role.GOOD


def _runway(row: RequestRow, look: Look) -> Cell:
    text = formats.seconds(row.runway_s, unicode=look.unicode).rjust(6)
    if row.runway_s is None or not row.state.is_live:
        return Cell(text + " " + " " * BAR_CELLS, Role.FAINT)
    return Cell(f"{text} {runway_bar(row, BAR_CELLS, look)}", runway_role(row))


def runway_bar(row: RequestRow, width: int, look: Look) -> str:
    """Ten seconds fill it. Where the runway is too short for a pause a mark shows how much that would take."""
    runway_s, required_s = row.runway_s or 0.0, row.required_runway_s
    bar = formats.bar(runway_s / BAR_FULL_S, width, unicode=look.unicode)
    if required_s is None or runway_s >= required_s or row.state is not RequestState.RUNNING:
        return bar
    at = min(int(required_s / BAR_FULL_S * width), width - 1)
    if at <= int(min(runway_s / BAR_FULL_S, 1.0) * width) and bar[at] not in "·.":
        return bar
    return bar[:at] + ("┊" if look.unicode else "|") + bar[at + 1 :]


_STATE_ROLES = {
    RequestState.WAITING: Role.WARN,
    RequestState.PREFILLING: Role.PLAIN,
    RequestState.RUNNING: Role.GOOD,
    RequestState.PREEMPTED: Role.WARN,
    RequestState.OFFLOADING: Role.WARN,
    RequestState.LOADING: Role.WARN,
    RequestState.FINISHED: Role.FAINT,
    RequestState.ABORTED: Role.BAD,
}


def _state(row: RequestRow, look: Look) -> Cell:
    glyph = formats.request_glyph(row.state, unicode=look.unicode)
    return Cell(f"{glyph} {row.state}", _STATE_ROLES[row.state])


def _rate(row: RequestRow, look: Look) -> Cell:
    if row.rate_tok_s is None:
        return Cell(formats.dash(unicode=look.unicode), Role.FAINT)
    return Cell(f"{formats.figure(row.rate_tok_s)} {formats.rate_source(row.rate_source):<4}")


def _unread(row: RequestRow, look: Look) -> Cell:
    return Cell(formats.dash(unicode=look.unicode) if row.unread_tokens is None else str(row.unread_tokens))


def _stalls(row: RequestRow, look: Look) -> Cell:
    if row.stall_count == 0:
        return Cell("0", Role.FAINT)
    return Cell(f"{row.stall_count}, {formats.seconds(row.stall_s, unicode=look.unicode)}", Role.WARN)


def _required(row: RequestRow, look: Look) -> Cell:
    if row.required_runway_s is None or row.state is not RequestState.RUNNING:
        return Cell(formats.dash(unicode=look.unicode), Role.FAINT)
    mark = "✓" if look.unicode else "+"
    text = formats.seconds(row.required_runway_s, unicode=look.unicode)
    return Cell(f"{text} {mark if row.preemptible else ' '}")


def _kv(row: RequestRow, look: Look) -> Cell:
    if row.kv_device_tokens is None and row.kv_host_tokens is None:
        return Cell(formats.dash(unicode=look.unicode), Role.FAINT)
    return Cell(f"{row.kv_device_tokens or 0}+{row.kv_host_tokens or 0}")


def _pauses(row: RequestRow, look: Look) -> Cell:
    return Cell(str(row.preemption_count), Role.FAINT if row.preemption_count == 0 else Role.PLAIN)


def _reason(row: RequestRow, look: Look) -> Cell:
    return Cell(row.reason or formats.dash(unicode=look.unicode), Role.PLAIN if row.reason else Role.FAINT)


COLUMNS: tuple[Column, ...] = (
    Column("RID", "rid", False, 0, lambda row, look: Cell(row.rid, Role.STRONG)),
    Column("STATE", "state", False, 0, _state, 12),
    Column("CLASS", "class_", False, 11, lambda row, look: Cell(row.class_), 9),
    Column("TOK/S FROM", "rate_tok_s", True, 1, _rate),
    Column("UNREAD", "unread_tokens", True, 3, _unread),
    Column("RUNWAY", "runway_s", False, 0, _runway),
    Column("NEEDS", "required_runway_s", True, 8, _required, 7),
    Column("GPU+HOST", "kv_device_tokens", True, 6, _kv),
    Column("PAUSES", "preemption_count", True, 4, _pauses),
    Column("STALLS", "stall_s", True, 2, _stalls, 9),
    Column("TTFT", "ttft_s", True, 9, lambda row, look: Cell(formats.seconds(row.ttft_s, unicode=look.unicode)), 6),
    Column("TOKENS", "generated_tokens", True, 7, lambda row, look: Cell(str(row.generated_tokens))),
    Column("AGE", "age_s", True, 10, lambda row, look: Cell(formats.seconds(row.age_s, unicode=look.unicode)), 6),
    Column("REASON", "reason", False, 5, _reason, max(map(len, Reason))),
)


def fit_columns(widths: Sequence[int], limit: int | None) -> list[int]:
    """Indices of the columns that fit into `limit` cells; those most easily missed are dropped first."""
    kept = list(range(len(COLUMNS)))
    while limit is not None and sum(widths[i] for i in kept) + len(GAP) * (len(kept) - 1) > limit:
        dropped = max(kept, key=lambda i: (COLUMNS[i].keep, i))
        if COLUMNS[dropped].keep == 0:
            break
        kept.remove(dropped)
    return kept


def table_cells(rows: Sequence[RequestRow], look: Look) -> tuple[list[list[Cell]], list[int]]:
    """All cells, and each column's width."""
    cells = [[column.cell(row, look) for column in COLUMNS] for row in rows]
    widths = [
        max([len(column.title), *(len(line[index].text) for line in cells)]) for index, column in enumerate(COLUMNS)
    ]
    return cells, widths


def request_lines(rows: Sequence[RequestRow], look: Look) -> tuple[list[Cell], list[list[Cell]]]:
    """The title line and one line a row, each made of padded cells that fit into the look's width if that can be."""
    cells, widths = table_cells(rows, look)
    kept = fit_columns(widths, look.width)
    titles = [Cell(pad(COLUMNS[i].title, widths[i], is_right=COLUMNS[i].is_right), Role.FAINT) for i in kept]
    lines = [
        [Cell(pad(line[i].text, widths[i], is_right=COLUMNS[i].is_right), line[i].role) for i in kept] for line in cells
    ]
    return titles, lines


def render_requests(rows: Sequence[RequestRow], look: Look) -> list[str]:
    """The table with its header as text; no line ends in blanks."""
    titles, lines = request_lines(rows, look)
    return [paint_line(line, look, gap=GAP) for line in [titles, *lines]]
