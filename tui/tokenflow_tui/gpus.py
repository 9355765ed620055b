"""The GPUs, one line each, from whatever of their figures the daemon could read. Pure."""

from collections.abc import Sequence

from tfctl import formats
from tfctl.output import Look, Role
from tfctl.views.cells import Cell
from tokenflow.wire import GpuInfo

_BAR_CELLS = 8


def gpu_lines(gpus: Sequence[GpuInfo], look: Look, height: int = 4) -> list[list[Cell]]:
    """Utilisation, memory, temperature, power, and what keeps it from its full clock; what is not known is left out."""
    if not gpus:
        return [[Cell("no GPU seen", Role.FAINT)]]
    shown = gpus if len(gpus) <= height else gpus[: height - 1]
    lines = [_line(gpu, look) for gpu in shown]
    if len(shown) < len(gpus):
        lines.append([Cell(f"and {len(gpus) - len(shown)} more", Role.FAINT)])
    return lines


def _line(gpu: GpuInfo, look: Look) -> list[Cell]:
    line = [Cell(f"{gpu.index} {(gpu.name or 'GPU').removeprefix('NVIDIA ')}", Role.STRONG)]
    if gpu.utilization_ratio is not None:
        bar = formats.bar(gpu.utilization_ratio, _BAR_CELLS, unicode=look.unicode)
        line.append(Cell(f"{bar} {formats.percent(gpu.utilization_ratio)}"))
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    if used is not None and total:
        role = Role.WARN if used > 0.98 * total else Role.PLAIN
        line.append(Cell(f"{used / 2**30:.0f}/{formats.size(total)}", role))
    for value, unit in ((gpu.temperature_c, "°C" if look.unicode else "C"), (gpu.power_w, "W")):
        if value is not None:
            line.append(Cell(f"{value:.0f} {unit}"))
    if gpu.throttle_reasons:
        line.append(Cell(f"held back: {', '.join(gpu.throttle_reasons)}", Role.WARN))
    return line
