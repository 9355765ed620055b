"""The GPUs, one line each, from whatever of their figures the daemon could read. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfctl import formats
from tfctl.output import Look, Role
from tfctl.views.cells import Cell

_BAR_CELLS = 8


def gpu_lines(gpus: Sequence[Mapping[str, Any]], look: Look, height: int = 4) -> list[list[Cell]]:
    """Utilisation, memory, temperature, power and link; what is not known is left out."""
    if not gpus:
        return [[Cell("no GPU seen", Role.FAINT)]]
    shown = gpus if len(gpus) <= height else gpus[: height - 1]
    lines = [_line(gpu, index, look) for index, gpu in enumerate(shown)]
    if len(shown) < len(gpus):
        lines.append([Cell(f"and {len(gpus) - len(shown)} more", Role.FAINT)])
    return lines


def _line(gpu: Mapping[str, Any], index: int, look: Look) -> list[Cell]:
    name = str(gpu.get("name") or "GPU").removeprefix("NVIDIA ")
    line = [Cell(f"{gpu.get('index', index)} {name}", Role.STRONG)]
    used_ratio = _number(gpu, "utilization_ratio")
    if used_ratio is not None:
        bar = formats.bar(used_ratio, _BAR_CELLS, unicode=look.unicode)
        line.append(Cell(f"{bar} {formats.percent(used_ratio)}"))
    used, total = _number(gpu, "memory_used_bytes"), _number(gpu, "memory_total_bytes")
    if used is not None and total:
        role = Role.WARN if used > 0.98 * total else Role.PLAIN
        line.append(Cell(f"{used / 2**30:.0f}/{formats.size(total)}", role))
    for key, unit in (("temperature_c", "°C" if look.unicode else "C"), ("power_w", "W")):
        value = _number(gpu, key)
        if value is not None:
            line.append(Cell(f"{value:.0f} {unit}"))
    error = gpu.get("error")
    if error:
        line.append(Cell(str(error), Role.WARN))
    return line


def _number(gpu: Mapping[str, Any], key: str) -> float | None:
    value = gpu.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
