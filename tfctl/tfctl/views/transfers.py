"""`tfctl transfers` for people."""

from tfctl import formats
from tfctl.documents import TransfersDocument
from tfctl.output import Look, Role
from tfctl.views.cells import pad
from tokenflow.wire import Document, Tail, TransferQueue

_TITLES = ("", "QUEUED", "BYTES", "DONE IN", "BANDWIDTH", "IN ALL", "TAKES P50", "P99")


def eta_s(queue: TransferQueue) -> float | None:
    """Seconds until the queue is empty at the bandwidth of late; None where that is not known."""
    if not queue.queue_bytes:
        return 0.0
    return queue.queue_bytes / queue.bandwidth_bytes_s if queue.bandwidth_bytes_s else None


def render_transfers(document: Document, look: Look) -> list[str]:
    """A line a direction, then one a request that moves."""
    assert isinstance(document, TransfersDocument)
    arrows = ("↥ to host", "↧ to GPU") if look.unicode else ("to host", "to GPU")
    transfers, latency = document.transfers, document.latency
    rows = [
        _TITLES,
        _cells(arrows[0], transfers.d2h, latency.evict_s, look),
        _cells(arrows[1], transfers.h2d, latency.load_s, look),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    lines = [
        "  ".join(pad(cell, width, is_right=at > 0) for at, (cell, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    lines[0] = look.paint(lines[0], Role.FAINT)
    for moving in document.moving:
        glyph = formats.request_glyph(moving.state, unicode=look.unicode)
        lines.append(
            f"{glyph} {moving.rid} {moving.state}: {moving.kv_device_tokens or 0} tokens on the GPU, "
            f"{moving.kv_host_tokens or 0} on the host"
        )
    if not document.moving:
        lines.append(look.paint("no request moves", Role.FAINT))
    return lines


def _cells(arrow: str, queue: TransferQueue, taken: Tail, look: Look) -> tuple[str, ...]:
    unicode = look.unicode
    bandwidth = formats.dash(unicode=unicode)
    if queue.bandwidth_bytes_s is not None:
        bandwidth = f"{formats.size(queue.bandwidth_bytes_s)}/s"
    return (
        arrow,
        str(queue.queue_count),
        formats.size(queue.queue_bytes),
        formats.seconds(eta_s(queue), unicode=unicode),
        bandwidth,
        formats.size(queue.total_bytes),
        formats.seconds(taken.p50, unicode=unicode),
        formats.seconds(taken.p99, unicode=unicode),
    )
