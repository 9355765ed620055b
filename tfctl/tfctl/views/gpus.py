"""A GPU in a line or two, for `tfctl status` and the live view. Pure."""

from tfctl import formats
from tfctl.output import Look, Role
from tfctl.views.cells import Cell
from tokenflow.wire import GpuInfo

NO_GPU, NO_GPU_HINT = "none: NVML tells of none", "tfctl doctor says why"
_BAR_CELLS = 8


def gpu_cells(gpu: GpuInfo, look: Look) -> tuple[list[Cell], list[Cell]]:
    """How busy it is and what keeps it from its full clock; then memory, temperature and power.

    What is not known is left out.
    """
    line = [Cell(f"{gpu.index} {(gpu.name or 'GPU').removeprefix('NVIDIA ')}", Role.STRONG)]
    if gpu.utilization_ratio is not None:
        bar = formats.bar(gpu.utilization_ratio, _BAR_CELLS, unicode=look.unicode)
        line.append(Cell(f"{bar} {formats.percent(gpu.utilization_ratio)}"))
    if gpu.throttle_reasons:
        line.append(Cell(f"held back: {', '.join(gpu.throttle_reasons)}", Role.WARN))
    rest = []
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    if used is not None and total:
        role = Role.WARN if used > 0.98 * total else Role.PLAIN
        rest.append(Cell(f"{used / 2**30:.0f}/{formats.size(total)}", role))
    for value, unit in ((gpu.temperature_c, "°C" if look.unicode else "C"), (gpu.power_w, "W")):
        if value is not None:
            rest.append(Cell(f"{value:.0f} {unit}"))
    return line, rest
