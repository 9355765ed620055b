"""The transfer queues between device and host KV pools, both directions. Pure."""

from collections.abc import Sequence

from tfctl import formats
from tfctl.output import Look, Role
from tfctl.views.cells import Cell
from tfctl.views.transfers import eta_s
from tokenflow.policy.states import RequestState
from tokenflow.wire import RequestRow, TransferQueue, Transfers

_RID_CELLS = 6


def transfer_lines(transfers: Transfers, rows: Sequence[RequestRow], look: Look, height: int = 4) -> list[list[Cell]]:
    """Queue, bandwidth, time to empty and total of each direction; with four lines also which requests move."""
    arrows = ("↥ to host", "↧ to GPU ") if look.unicode else ("^ to host", "v to GPU ")
    lines: list[list[Cell]] = []
    for arrow, queue, state in (
        (arrows[0], transfers.d2h, RequestState.OFFLOADING),
        (arrows[1], transfers.h2d, RequestState.LOADING),
    ):
        lines.append(_queue_line(arrow, queue, look))
        if height >= 4:
            lines.append(_moving_line([row for row in rows if row.state is state], look))
    return lines


def _queue_line(arrow: str, queue: TransferQueue, look: Look) -> list[Cell]:
    is_moving = bool(queue.queue_count or queue.queue_bytes)
    role = Role.WARN if is_moving else Role.PLAIN
    line = [Cell(arrow, Role.STRONG), Cell(f"{queue.queue_count} queued", role)]
    if is_moving:
        line.append(Cell(formats.size(queue.queue_bytes), role))
        left_s = eta_s(queue)
        line.append(Cell("time not known" if left_s is None else f"done in {formats.seconds(left_s)}"))
    if queue.bandwidth_bytes_s is not None:
        line.append(Cell(f"{formats.size(queue.bandwidth_bytes_s)}/s"))
    line.append(Cell(f"{formats.size(queue.total_bytes)} in all", Role.FAINT))
    return line


def _moving_line(rows: Sequence[RequestRow], look: Look) -> list[Cell]:
    if not rows:
        return [Cell("  no request moves", Role.FAINT)]
    dots = "…" if look.unicode else "~"
    names = [
        f"{dots}{row.rid[-_RID_CELLS:]} {(row.kv_host_tokens or row.kv_device_tokens or 0)} tok" for row in rows[:4]
    ]
    more = f" and {len(rows) - 4} more" if len(rows) > 4 else ""
    return [Cell("  " + ", ".join(names) + more)]
