"""What stands above the table: the engine, the mode, demand against capacity, and what is wrong."""

from tfctl import formats
from tfctl.output import Look, Role
from tfctl.views.cells import Cell
from tfctl.views.status import demand_text, engine_role
from tokenflow.policy.states import Mode
from tokenflow.wire import Capacity, StatusDocument

_BAR_CELLS = 12
_MODE_ROLES = {Mode.OBSERVE: Role.PLAIN, Mode.ENFORCE: Role.GOOD, Mode.OFF: Role.FAINT}


def header_lines(status: StatusDocument, look: Look) -> list[list[Cell]]:
    """Two lines, and one for each alarm."""
    engine, policy = status.engine, status.policy
    glyph = formats.engine_glyph(engine.state, unicode=look.unicode)
    first = [Cell(f"{glyph} {engine.state}", engine_role(engine.state))]
    first += [Cell(text, Role.STRONG) for text in (engine.model,) if text]
    first += [Cell(text) for text in (engine.profile, engine.reason or engine.progress) if text]
    if policy.mode is not None:
        first.append(Cell(f"mode {policy.mode}", _MODE_ROLES[policy.mode]))
    if policy.overload:
        first.append(Cell("OVERLOAD", Role.BAD))
    lines = [first, _load_line(status, look)]
    mark = "▲" if look.unicode else "!"
    lines += [[Cell(f"{mark} {alarm.message}", Role.WARN)] for alarm in status.alarms]
    return lines


def _load_line(status: StatusDocument, look: Look) -> list[Cell]:
    capacity = status.capacity
    line = [Cell(demand_text(capacity))]
    used_ratio = _used_ratio(capacity)
    if used_ratio is not None:
        role = Role.GOOD if used_ratio < 0.9 else Role.WARN if used_ratio <= 1.0 else Role.BAD
        line.append(Cell(formats.bar(used_ratio, _BAR_CELLS, unicode=look.unicode), role))
    line.append(
        Cell(
            f"{capacity.running_count} running {capacity.waiting_count} waiting {capacity.preempted_count} preempted",
        )
    )
    stall_s = status.quality.stall_s_total
    line.append(Cell(f"stalled {formats.seconds(stall_s)}", Role.WARN if stall_s > 0 else Role.FAINT))
    return line


def _used_ratio(capacity: Capacity) -> float | None:
    if not capacity.capacity_tok_s:
        return None
    return capacity.demand_tok_s / capacity.capacity_tok_s
