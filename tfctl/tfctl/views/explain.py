"""`tfctl explain RID` for people."""

from tfctl import formats
from tfctl.output import Look, Role
from tokenflow.tuning import ExplainDocument


def render_explained(document: ExplainDocument, look: Look) -> list[str]:
    """Where it stands, whether it may be paused, then every term that is known, in the policy's order."""
    reason = f" ({document.reason})" if document.reason else ""
    lines = [f"{look.paint(document.rid or '', Role.STRONG)} is {document.state}{reason}"]
    known = {key: value for key, value in document.terms.items() if value is not None}
    width = max(map(len, known), default=0)
    lines += [f"  {look.paint(key.ljust(width), Role.FAINT)}  {_text(key, value)}" for key, value in known.items()]
    if document.runway_s is None:
        lines.append("nobody reads along: it has no runway")
    else:
        runway = formats.seconds(document.runway_s, unicode=look.unicode)
        required = formats.seconds(document.required_runway_s, unicode=look.unicode)
        lines.append(f"runway {runway}, a pause needs {required} ({document.required_tokens} unread tokens)")
    if document.state == "running":
        if document.preemptible:
            lines.append(look.paint("safe to pause: its reader would notice nothing", Role.GOOD))
        else:
            lines.append(look.paint("not safe to pause: its reader could run dry", Role.WARN))
    return lines


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    unit = " tok/s" if key.endswith("_tok_s") else " s" if key.endswith("_s") else ""
    return f"{value:.4g}{unit}" if isinstance(value, float) else f"{value}{unit}"
