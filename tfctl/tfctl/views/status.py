"""`tfctl status` for people."""

from tfctl import formats
from tfctl.output import Look, Role, with_socket
from tfctl.views.gpus import NO_GPU, NO_GPU_HINT, gpu_cells
from tokenflow.policy.states import Mode
from tokenflow.wire import Alarm, Capacity, EngineInfo, EngineState, PluginState, PolicyInfo, StatusDocument

_LABEL_WIDTH = 10
_ROLES = {
    EngineState.STOPPED: Role.FAINT,
    EngineState.STARTING: Role.WARN,
    EngineState.SERVING: Role.GOOD,
    EngineState.BUSY: Role.GOOD,
    EngineState.DRAINING: Role.WARN,
    EngineState.WEDGED: Role.BAD,
    EngineState.FAILED: Role.BAD,
}
_NEXT = {
    EngineState.STOPPED: "start it: tfctl start",
    EngineState.STARTING: "wait for it: tfctl wait --for serving",
    EngineState.WEDGED: "see why: tfctl logs; then: tfctl restart",
    EngineState.FAILED: "see why: tfctl logs; then: tfctl start",
}


def engine_role(state: EngineState) -> Role:
    """How an engine state is to be taken."""
    return _ROLES[state]


def engine_word(engine: EngineInfo, look: Look) -> str:
    """Glyph and state, coloured: `● serving`."""
    glyph = formats.engine_glyph(engine.state, unicode=look.unicode)
    return look.paint(f"{glyph} {engine.state}", _ROLES[engine.state])


def render_no_daemon(look: Look, engine: EngineInfo) -> list[str]:
    """What to say when nobody answers. `engine` has a reason where one runs all the same."""
    if engine.reason is not None:
        glyph = formats.engine_glyph(engine.state, unicode=look.unicode)
        return [
            look.paint(f"{glyph} tokenflowd is not running", Role.BAD),
            with_socket(f"  {engine.reason}: tfctl start watches it again, tfctl stop ends it", look.socket),
        ]
    glyph = formats.engine_glyph(EngineState.STOPPED, unicode=look.unicode)
    return [
        look.paint(f"{glyph} tokenflowd is not running", Role.FAINT),
        with_socket("  start it: tfctl start", look.socket),
    ]


def render_status(document: StatusDocument, look: Look) -> list[str]:
    """A short block: the engine first, then what it can do and does, then what is wrong."""
    engine = document.engine
    lines = [_headline(engine, look)]
    rows: list[tuple[str, str]] = []
    if engine.profile is not None:
        rows.append(("profile", engine.profile))
    if engine.pid is not None:
        rows.append(("engine", _engine_text(engine)))
    if document.policy.mode is not None:
        rows.append(("mode", _mode_text(document.policy, document.policy.mode)))
    if engine.state in (EngineState.SERVING, EngineState.BUSY, EngineState.DRAINING, EngineState.WEDGED):
        rows += [*_load_rows(document, look), *_gpu_rows(document, look)]
    if document.daemon is not None:
        daemon = document.daemon
        uptime = formats.seconds(daemon.uptime_s, unicode=look.unicode)
        rows.append(("daemon", f"{daemon.version}, pid {daemon.pid}, up {uptime}, {daemon.socket}"))
    lines += [f"  {look.paint(label.ljust(_LABEL_WIDTH), Role.FAINT)} {text}" for label, text in rows]
    for alarm in document.alarms:
        lines += _alarm_lines(alarm, look)
    if engine.state in _NEXT:
        lines.append(with_socket(f"  {_NEXT[engine.state]}", look.socket))
    return lines


def _headline(engine: EngineInfo, look: Look) -> str:
    parts = [engine_word(engine, look) + (" (adopted)" if engine.adopted else "")]
    if engine.model is not None and engine.state is not EngineState.STOPPED:
        parts.append(look.paint(engine.model, Role.STRONG))
    if engine.url is not None and engine.state is not EngineState.STOPPED:
        parts.append(engine.url)
    if engine.state is EngineState.STARTING and engine.progress:
        ratio = "" if engine.progress_ratio is None else f" {formats.percent(engine.progress_ratio)}"
        parts.append(engine.progress + ratio)
    if engine.reason:
        parts.append(engine.reason)
    return "  ".join(parts)


def _engine_text(engine: EngineInfo) -> str:
    parts = [f"SGLang {engine.version}" if engine.version else "SGLang", f"pid {engine.pid}"]
    if engine.uptime_s is not None:
        parts.append(f"up {formats.seconds(engine.uptime_s)}")
    if engine.step_count is not None:
        age = "" if engine.step_age_s is None else f" ({formats.seconds(engine.step_age_s)} ago)"
        parts.append(f"step {engine.step_count}{age}")
    if engine.plugin is not PluginState.ACTIVE:
        parts.append(f"plugin {engine.plugin}" + (f": {engine.plugin_detail}" if engine.plugin_detail else ""))
    return ", ".join(parts)


def _mode_text(policy: PolicyInfo, mode: Mode) -> str:
    meaning = {Mode.OBSERVE: "decides, changes nothing", Mode.ENFORCE: "decides and acts", Mode.OFF: "stock scheduling"}
    text = f"{mode} ({meaning[mode]})"
    if policy.variant is not None:
        text += f", policy {policy.variant}"
    if policy.overload:
        text += ", overload"
    if policy.blocked_by:
        text += f"; enforce is ruled out by {', '.join(policy.blocked_by)}"
    if policy.fault_count:
        text += f"; {policy.fault_count} faults"
    return text


def demand_text(capacity: Capacity) -> str:
    """The summed rates against what the engine can make: `demand 48.5 of 62 tok/s`."""
    if capacity.capacity_tok_s is None:
        return f"demand {formats.rate(capacity.demand_tok_s)}, capacity not measured yet"
    return f"demand {formats.figure(capacity.demand_tok_s)} of {formats.rate(capacity.capacity_tok_s)}"


def _load_rows(document: StatusDocument, look: Look) -> list[tuple[str, str]]:
    capacity, quality = document.capacity, document.quality
    demand = demand_text(capacity)
    if capacity.headroom_ratio is not None:
        demand += f", headroom {formats.percent(capacity.headroom_ratio)}"
    if capacity.saturation_forecast_s is not None:
        demand += f", saturated in {formats.seconds(capacity.saturation_forecast_s)}"
    streams = (
        f"{capacity.running_count} running, {capacity.waiting_count} waiting, {capacity.preempted_count} preempted"
        f"; makes {formats.rate(quality.raw_tok_s)}"
    )
    ttft = quality.ttft_s
    p50, p99 = (formats.seconds(tail_s, unicode=look.unicode) for tail_s in (ttft.p50, ttft.p99))
    readers = f"TTFT p50 {p50} p99 {p99}, stalls {formats.seconds(quality.stall_s_total)} in all"
    rows = [("capacity", demand), ("streams", streams), ("readers", readers)]
    transfers = document.transfers
    if transfers.d2h.total_bytes or transfers.h2d.total_bytes:
        arrow = ("↥", "↧") if look.unicode else ("to host", "to GPU")
        rows.append(
            (
                "transfers",
                f"{arrow[0]} {formats.size(transfers.d2h.total_bytes)}, {transfers.d2h.queue_count} queued; "
                f"{arrow[1]} {formats.size(transfers.h2d.total_bytes)}, {transfers.h2d.queue_count} queued",
            )
        )
    return rows


def _gpu_rows(document: StatusDocument, look: Look) -> list[tuple[str, str]]:
    if not document.gpus:
        return [("gpu", f"{NO_GPU} ({NO_GPU_HINT})")]
    rows = []
    for gpu in document.gpus:
        busy, rest = gpu_cells(gpu, look)
        rows.append(("gpu", "  ".join(look.paint(cell.text, cell.role) for cell in busy + rest)))
    return rows


def _alarm_lines(alarm: Alarm, look: Look) -> list[str]:
    mark = "▲" if look.unicode else "!"
    lines = [look.paint(f"{mark} {alarm.message}", Role.WARN)]
    if alarm.hint:
        lines.append(with_socket(f"  {alarm.hint}", look.socket))
    return lines
