"""The figures of one stream, few enough to keep for every request of a long run when its times are gone."""

from dataclasses import dataclass

from tokenflow.quality.effective import author_score, effective_tokens
from tokenflow.quality.goodput import GoodputLimits, is_good
from tokenflow.quality.playback import play
from tokenflow.quality.qoe import andes_qoe, max_idle_s
from tokenflow.quality.record import StreamRecord


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """What a run's summary takes of each stream (docs/metrics.md). Without a reader only TTFT and tokens count."""

    arrival_s: float
    end_s: float | None  # of the last token; None where there was none
    token_count: int
    ttft_s: float | None
    has_reader: bool
    effective_tokens: float = 0.0
    author_score: float = 0.0
    qoe: float | None = None
    stall_s: float = 0.0
    stall_count: int = 0
    max_idle_s: float | None = None
    is_good: bool = False


def figures_of(record: StreamRecord, *, ttft_target_s: float, limits: GoodputLimits) -> StreamFigures:
    """All of one stream, read once."""
    count = record.token_count
    end_s = float(record.token_times_s[-1]) if count else None
    has_reader = record.rate_tok_s is not None and count > 0
    good = is_good(record, limits)
    if not has_reader:
        return StreamFigures(record.arrival_s, end_s, count, record.ttft_s, has_reader, is_good=good)
    played = play(record)
    return StreamFigures(
        record.arrival_s,
        end_s,
        count,
        record.ttft_s,
        has_reader,
        effective_tokens=effective_tokens(record, played),
        author_score=author_score(record),
        qoe=andes_qoe(record, ttft_target_s, played),
        stall_s=played.stall_s,
        stall_count=played.stall_count,
        max_idle_s=max_idle_s(record, ttft_target_s),
        is_good=good,
    )
