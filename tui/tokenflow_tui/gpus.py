"""The GPUs, a line or two each, from whatever of their figures the daemon could read. Pure."""

from collections.abc import Sequence

from tfctl.output import Look, Role
from tfctl.views.cells import Cell
from tfctl.views.gpus import NO_GPU, NO_GPU_HINT, gpu_cells
from tokenflow.wire import GpuInfo


def gpu_lines(gpus: Sequence[GpuInfo], look: Look, height: int = 4) -> list[list[Cell]]:
    """As many as there is room for; where there are none it says so."""
    if not gpus:
        return [[Cell("GPU", Role.FAINT), Cell(NO_GPU)], [Cell(NO_GPU_HINT, Role.FAINT)]]
    if 2 * len(gpus) <= height:
        parts = [gpu_cells(gpu, look) for gpu in gpus]
        return [line for busy, rest in parts for line in (busy, [Cell(""), *rest])]
    shown = gpus if len(gpus) <= height else gpus[: height - 1]
    lines = [busy + rest for busy, rest in (gpu_cells(gpu, look) for gpu in shown)]
    if len(shown) < len(gpus):
        lines.append([Cell(f"and {len(gpus) - len(shown)} more", Role.FAINT)])
    return lines
