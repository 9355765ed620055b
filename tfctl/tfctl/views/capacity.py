"""`tfctl capacity` for people."""

from tfctl import formats
from tfctl.documents import CapacityDocument
from tfctl.output import Look, Role
from tokenflow.wire import Document

_BAR_CELLS = 30
_LABEL_CELLS = 10


def render_capacity(document: Document, look: Look) -> list[str]:
    """Capacity, demand as a bar of it, the forecast, who is served."""
    assert isinstance(document, CapacityDocument)
    capacity, unicode = document.capacity, look.unicode
    known = capacity.capacity_tok_s
    rows = [("capacity", formats.rate(known, unicode=unicode) if known else "not measured yet")]
    demand = formats.rate(capacity.demand_tok_s)
    if known:
        ratio = capacity.demand_tok_s / known
        role = Role.GOOD if ratio < 0.9 else Role.WARN if ratio <= 1 else Role.BAD
        bar = formats.bar(ratio, _BAR_CELLS, unicode=unicode)
        demand += "  " + look.paint(f"{bar} {formats.percent(ratio)}", role)
    rows.append(("demand", demand))
    if capacity.headroom_ratio is not None:
        rows.append(("headroom", formats.percent(capacity.headroom_ratio)))
    if document.is_overloaded:
        rows.append(("overload", look.paint("yes: the oldest streams that fit are served, the others wait", Role.BAD)))
    elif capacity.saturation_forecast_s is not None:
        rows.append(("full in", look.paint(formats.seconds(capacity.saturation_forecast_s), Role.WARN)))
    made = formats.rate(document.raw_tok_s)
    if document.effective_tok_s is not None:
        made += f", {formats.rate(document.effective_tok_s)} of them in time for their readers"
    rows.append(("made", made))
    rows.append(
        (
            "streams",
            f"{capacity.running_count} running, {capacity.waiting_count} waiting, {capacity.preempted_count} preempted",
        )
    )
    return [f"{look.paint(label.ljust(_LABEL_CELLS), Role.FAINT)} {text}" for label, text in rows]
