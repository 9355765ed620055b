"""What stands above the table: the engine, the mode, demand against capacity, and what is wrong."""

from tfctl import formats
from tfctl.output import Look, Role
from tfctl.views.cells import Cell
from tfctl.views.status import demand_text, engine_role
from tokenflow.policy.states import Mode
from tokenflow.wire import Capacity, EngineState, StatusDocument

_BAR_CELLS = 12
_BAR_FROM_CELLS = 90
_MODE_ROLES = {Mode.OBSERVE: Role.PLAIN, Mode.ENFORCE: Role.GOOD, Mode.OFF: Role.FAINT}
_SLOW_STEP = (EngineState.BUSY, EngineState.WEDGED)


def header_lines(status: StatusDocument, look: Look, alarm_limit: int | None = None) -> list[list[Cell]]:
    """Two lines, and one for each alarm, `alarm_limit` of them at most."""
    lines = [_engine_line(status, look), _load_line(status, look)]
    mark = "▲" if look.unicode else "!"
    shown = status.alarms if alarm_limit is None else status.alarms[:alarm_limit]
    for alarm in shown:
        message = Cell(f"{mark} {_one_line(alarm.message)}", Role.WARN)
        hint = [Cell(_one_line(alarm.hint), Role.FAINT)] if alarm.hint and alarm_limit is not None else []
        is_long = look.width is not None and sum(len(cell.text) + 2 for cell in (message, *hint)) > look.width + 2
        if hint and is_long and len(status.alarms) == 1:  # several alarms must not take the table's place
            lines += [[message], [Cell("  " + hint[0].text, Role.FAINT)]]
        else:
            lines.append([message, *hint])
    if len(shown) < len(status.alarms):
        lines.append([Cell(f"{mark} and {len(status.alarms) - len(shown)} more alarms: tfctl status", Role.WARN)])
    return lines


def _engine_line(status: StatusDocument, look: Look) -> list[Cell]:
    engine, policy = status.engine, status.policy
    glyph = formats.engine_glyph(engine.state, unicode=look.unicode)
    line = [Cell(f"{glyph} {engine.state}", engine_role(engine.state))]
    line += [Cell(text, Role.STRONG) for text in (engine.model,) if text]
    if engine.profile:
        line.append(Cell(_one_line(engine.profile)))
    if policy.mode is not None:
        line.append(Cell(f"mode {policy.mode}", _MODE_ROLES[policy.mode]))
    if policy.overload:
        line.append(Cell("OVERLOAD", Role.BAD))
    # What may be long comes after what must be seen: a narrow screen cuts the end off.
    if text := engine.reason or engine.progress:
        line.append(Cell(_one_line(text)))
    if engine.progress_ratio is not None:
        bar = formats.bar(engine.progress_ratio, _BAR_CELLS, unicode=look.unicode)
        line.append(Cell(f"{bar} {formats.percent(engine.progress_ratio)}"))
    if engine.adopted:
        line.append(Cell("adopted", Role.FAINT))
    if engine.state in _SLOW_STEP and engine.step_age_s is not None:
        line.append(Cell(f"in one step for {formats.seconds(engine.step_age_s)}", Role.WARN))
    return line


def _load_line(status: StatusDocument, look: Look) -> list[Cell]:
    capacity = status.capacity
    line = [Cell(demand_text(capacity))]
    used_ratio = _used_ratio(capacity)
    if used_ratio is not None:
        role = Role.GOOD if used_ratio < 0.9 else Role.WARN if used_ratio <= 1.0 else Role.BAD
        is_wide = look.width is None or look.width >= _BAR_FROM_CELLS
        bar = formats.bar(used_ratio, _BAR_CELLS, unicode=look.unicode) + " " if is_wide else ""
        line.append(Cell(bar + formats.percent(used_ratio), role))
    if capacity.saturation_forecast_s is not None:
        line.append(Cell(f"full in {formats.seconds(capacity.saturation_forecast_s)}", Role.WARN))
    line.append(
        Cell(
            f"{capacity.running_count} running {capacity.waiting_count} waiting {capacity.preempted_count} preempted",
        )
    )
    stall_s = status.quality.stall_s_total
    line.append(Cell(f"stalled {formats.seconds(stall_s)}", Role.WARN if stall_s > 0 else Role.FAINT))
    return line


def _one_line(text: str) -> str:
    """What comes from a log may hold anything: no line break and no control character gets onto the screen."""
    return "".join(char if char.isprintable() else " " for char in text)


def _used_ratio(capacity: Capacity) -> float | None:
    if not capacity.capacity_tok_s:
        return None
    return capacity.demand_tok_s / capacity.capacity_tok_s
