"""How an event is shown: when, what, whom, why, and its figures."""

from datetime import datetime

from tfctl.output import Look, Role
from tokenflow.events import EventKind, EventRow, Term

_BAD = frozenset({EventKind.FAULT, EventKind.DISABLED, EventKind.ENGINE_FAILED, EventKind.LOST})
_KIND_WIDTH = max(len(kind) for kind in EventKind)


def line_of(row: EventRow, look: Look) -> str:
    """One line, the time in the host's zone."""
    moment = datetime.fromisoformat(row.at).astimezone()
    kind = look.paint(row.kind.ljust(_KIND_WIDTH), Role.BAD if row.kind in _BAD else Role.STRONG)
    words = [look.paint(moment.strftime("%H:%M:%S.%f")[:-3], Role.FAINT), kind]
    words += [word for word in (row.rid, row.reason) if word]
    words += [f"{key}={_text(value)}" for key, value in row.terms.items() if value is not None]
    if row.who:
        words.append(look.paint(f"by {row.who}", Role.FAINT))
    return " ".join(words).rstrip()


def _text(value: Term) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
