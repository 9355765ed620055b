"""The request table: its columns and cells, shared by `tfctl ps` and the live view, and the plain table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfctl import formats
from tfctl.output import Look, Role
from tfctl.views.cells import Cell, pad, paint_line
from tokenflow.policy.states import RequestState
from tokenflow.wire import RequestRow

BAR_CELLS = 8
BAR_FULL_S = 10.0  # a runway of ten seconds fills the bar: what is beyond is safe either way
_LOW_S = 2.0
GAP = "  "


@dataclass(frozen=True, slots=True)
class Column:
    """`keep` 0 is never dropped; where the width is short, the highest goes first."""

    title: str
    is_right: bool
    keep: int
    cell: Callable[[RequestRow, Look], Cell]


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
    bar = formats.bar(row.runway_s / BAR_FULL_S, BAR_CELLS, unicode=look.unicode)
    return Cell(f"{text} {bar}", runway_role(row))


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


COLUMNS: tuple[Column, ...] = (
    Column("RID", False, 0, lambda row, look: Cell(row.rid, Role.STRONG)),
    Column("STATE", False, 0, _state),
    Column("CLASS", False, 6, lambda row, look: Cell(row.class_)),
    Column("TOK/S FROM", True, 1, _rate),
    Column("UNREAD", True, 3, _unread),
    Column("RUNWAY", False, 0, _runway),
    Column("TTFT", True, 4, lambda row, look: Cell(formats.seconds(row.ttft_s, unicode=look.unicode))),
    Column("STALLS", True, 1, _stalls),
    Column("TOKENS", True, 2, lambda row, look: Cell(str(row.generated_tokens))),
    Column("AGE", True, 5, lambda row, look: Cell(formats.seconds(row.age_s, unicode=look.unicode))),
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
