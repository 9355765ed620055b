"""All that is known of one request: where it stands, what it did when, what was read, the policy's terms. Pure."""

from datetime import datetime

from tfctl import formats
from tfctl.output import Look, Role
from tfctl.views.cells import Cell
from tfctl.views.requests import runway_bar, runway_role
from tokenflow.events import EventRow
from tokenflow.policy.states import RequestState
from tokenflow.tuning import ExplainDocument
from tokenflow.wire import RequestRow
from tokenflow_tui.timelines import Timeline

TIMELINE_S = 60.0
_LABEL_CELLS = 10
_EVENT_TERMS = ("cause", "how", "runway_s", "required_runway_s", "benefit_s", "paused_s", "kv_tokens", "load_tokens")
_ROLES = {
    RequestState.RUNNING: Role.GOOD,
    RequestState.PREFILLING: Role.GOOD,
    RequestState.WAITING: Role.WARN,
    RequestState.PREEMPTED: Role.WARN,
    RequestState.OFFLOADING: Role.WARN,
    RequestState.LOADING: Role.WARN,
    RequestState.ABORTED: Role.BAD,
}


def detail_lines(
    row: RequestRow | None,
    timeline: Timeline | None,
    explained: ExplainDocument | None,
    now_s: float,
    look: Look,
    width: int,
) -> list[list[Cell]]:
    """`now_s`: wall time of what is shown. `row` None: no request is chosen."""
    if row is None:
        return [[Cell("no request", Role.FAINT)]]
    bar_cells = max(width - _LABEL_CELLS - 14, 6)
    lines = [*_standing(row, bar_cells, look), [], *_tokens(row, bar_cells, look), []]
    if timeline is not None:
        lines += _timeline(timeline, now_s, max(width - _LABEL_CELLS - 2, 10), look)
        lines += [_event(event, look) for event in timeline.events[-4:]]
        lines.append([])
    return lines + _terms(explained, look)


def _standing(row: RequestRow, bar_cells: int, look: Look) -> list[list[Cell]]:
    unicode = look.unicode
    glyph = formats.request_glyph(row.state, unicode=unicode)
    first = [Cell(row.rid, Role.STRONG), Cell(f"{glyph} {row.state}", _ROLES.get(row.state, Role.FAINT))]
    if row.reason is not None:
        first.append(Cell(row.reason))
    rate = "nobody reads along" if row.rate_tok_s is None else f"reads {formats.rate(row.rate_tok_s)}"
    source = "" if row.rate_tok_s is None else f" (from {row.rate_source})"
    lines = [first, [_label("reader"), Cell(f"{row.class_}, {rate}{source}")]]
    if row.parent_rid is not None:
        lines.append([_label("choice of"), Cell(row.parent_rid)])
    if row.runway_s is not None:
        text = formats.seconds(row.runway_s, unicode=unicode).rjust(6)
        lines.append([_label("runway"), Cell(f"{runway_bar(row, bar_cells, look)} {text}", runway_role(row))])
    if row.required_runway_s is not None and row.state is RequestState.RUNNING:
        verdict = Cell("safe to pause", Role.GOOD) if row.preemptible else Cell("not safe to pause now", Role.WARN)
        lines.append([_label("a pause"), Cell(f"needs {formats.seconds(row.required_runway_s)}"), verdict])
    kv = f"{_count(row.kv_device_tokens, look)} tokens on the GPU, {_count(row.kv_host_tokens, look)} on the host"
    stalls = f"{_counted(row.stall_count, 'stall')}, {formats.seconds(row.stall_s)}"
    times = f"age {formats.seconds(row.age_s)}, TTFT {formats.seconds(row.ttft_s, unicode=unicode)}"
    lines += [
        [_label("KV"), Cell(kv)],
        [_label("times"), Cell(times)],
        [
            _label("so far"),
            Cell(stalls, Role.WARN if row.stall_count else Role.PLAIN),
            Cell(_counted(row.preemption_count, "pause")),
        ],
    ]
    return lines


def _tokens(row: RequestRow, bar_cells: int, look: Look) -> list[list[Cell]]:
    """Made, delivered and read against each other: what is between them is what is unread."""
    greatest = max(row.generated_tokens, 1)
    lines = []
    for label, tokens in (
        ("made", float(row.generated_tokens)),
        ("delivered", float(row.delivered_tokens)),
        ("read", row.consumed_tokens),
    ):
        bar = formats.bar(tokens / greatest, bar_cells, unicode=look.unicode)
        lines.append([_label(label), Cell(f"{bar} {tokens:.0f}")])
    words = [f"{row.prompt_tokens} in the prompt"]
    if row.unread_tokens is not None:
        words.append(f"{row.unread_tokens} unread")
    if row.hidden_tokens:
        words.append(f"{row.hidden_tokens} hidden")
    lines.append([_label("tokens"), Cell(", ".join(words))])
    return lines


def _timeline(timeline: Timeline, now_s: float, width: int, look: Look) -> list[list[Cell]]:
    """One glyph of the state for each part of the last minute (less, where the request is younger)."""
    first_s = max(timeline.spans[0][0] if timeline.spans else now_s, now_s - TIMELINE_S)
    length_s = max(now_s - first_s, 1.0)
    text, role = "", Role.FAINT
    runs: list[Cell] = []
    for at in range(width):
        state = timeline.state_at(first_s + length_s * (at + 1) / width)
        glyph = " " if state is None else formats.request_glyph(state, unicode=look.unicode)
        glyph_role = Role.FAINT if state is None else _ROLES.get(state, Role.FAINT)
        if glyph_role is not role and text:
            runs.append(Cell(text, role, is_joined=bool(runs)))
            text = ""
        text, role = text + glyph, glyph_role
    runs.append(Cell(text, role, is_joined=bool(runs)))
    scale = f"{formats.seconds(length_s)} ago".ljust(max(width - 4, 0)) + "now"
    return [[_label("timeline"), *runs], [_label(""), Cell(scale, Role.FAINT)]]


def _event(event: EventRow, look: Look) -> list[Cell]:
    moment = datetime.fromisoformat(event.at).astimezone().strftime("%H:%M:%S")
    terms = [f"{key}={_term(event.terms[key])}" for key in _EVENT_TERMS if event.terms.get(key) is not None]
    words = [event.reason] if event.reason else []
    return [_label(moment), Cell(event.kind, Role.STRONG), Cell(" ".join([*words, *terms]), Role.FAINT)]


def _terms(explained: ExplainDocument | None, look: Look) -> list[list[Cell]]:
    if explained is None:
        return []
    lines = [[Cell("the policy's terms", Role.STRONG)]]
    names = [key for key, value in explained.terms.items() if value is not None]
    width = max(map(len, names), default=0)
    lines += [[Cell(f"  {key.ljust(width)}", Role.FAINT), Cell(_term(explained.terms[key]))] for key in names]
    return lines


def _term(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _count(value: int | None, look: Look) -> str:
    return formats.dash(unicode=look.unicode) if value is None else str(value)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _label(text: str) -> Cell:
    return Cell(text.ljust(_LABEL_CELLS), Role.FAINT)
