"""The results of a run as a table: a framed one on a terminal, plain columns elsewhere."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from tokenflow.loadgen.result import Outcome, RunSummary, StreamResult
from tokenflow.wire import RequestRow

NOTHING = "–"


def stream_table(
    streams: Sequence[StreamResult], rows: Mapping[str, RequestRow] | None = None, *, is_plain: bool
) -> Table:
    """One line a stream, as its client saw it. With `rows` (by rid), also how the daemon saw it."""
    table = Table(box=None if is_plain else box.SIMPLE_HEAD, pad_edge=False, collapse_padding=not is_plain)
    table.add_column("REQUEST", no_wrap=True)
    table.add_column("ENDED", no_wrap=True)
    headings = ["TTFT\ns", "TOKENS", "RATE\ntok/s", "LEAST\nRUNWAY s", "STALLS", "STALLED\ns"]
    headings += [] if rows is None else ["ENGINE\nTOKENS", "ENGINE\nSTALLS"]
    for heading in headings:
        # Two lines on a terminal, so that it fits 80 columns without `rows`; one line in a log.
        table.add_column(heading.replace("\n", " ") if is_plain else heading, justify="right")
    for stream in streams:
        cells = [
            stream.rid or f"#{stream.index}",
            _ending(stream),
            number(stream.ttft_s, 2),
            str(stream.token_count),
            number(stream.rate_tok_s, 1),
            number(stream.least_runway_s, 1),
            str(stream.stall_count),
            number(stream.stall_s, 1),
        ]
        if rows is not None:
            row = rows.get(stream.rid or "")
            cells += [NOTHING, NOTHING] if row is None else [str(row.generated_tokens), str(row.stall_count)]
        table.add_row(*cells, style=None if stream.is_complete else "red")
    return table


def summary_lines(summary: RunSummary) -> list[str]:
    """The figures over all streams, for people."""
    ttft = summary.ttft_s
    first = (
        NOTHING
        if ttft is None
        else f"mean {ttft.mean:.2f} s, p50 {ttft.p50:.2f}, p99 {ttft.p99:.2f}, max {ttft.max:.2f}"
    )
    return [
        f"{summary.complete_count} of {summary.stream_count} streams complete, {summary.token_count} tokens in "
        f"{number(summary.makespan_s, 1)} s, {number(summary.raw_tok_s, 1)} tok/s",
        f"first token: {first}",
        f"readers: {summary.stalled_stream_count} of {summary.stream_count} stalled, {summary.stall_count} times, "
        f"{summary.stall_s_total:.1f} s in all; least runway {number(summary.least_runway_s, 1)} s",
    ]


def number(value: float | None, digits: int) -> str:
    """A figure for a table; a dash where there is none."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def _ending(stream: StreamResult) -> str:
    if stream.outcome is Outcome.COMPLETED:
        return stream.finish_reason or stream.outcome.value
    return stream.outcome.value
