"""What one look at the daemon gave, and how it is kept: packed, so that ten minutes of it are a few megabytes."""

import zlib

import msgspec

from tokenflow.events import EventRow
from tokenflow.tuning import ExplainDocument, TunablesDocument
from tokenflow.wire import RequestsDocument, StatusDocument

_LEVEL = 1  # the view packs twice a second beside an engine: a fifth of the size at a tenth of the effort


class Moment(msgspec.Struct, kw_only=True):
    """`at_s`: wall time of the look, seconds since the epoch. `trouble` says why there are no documents,
    `trouble_hint` what to do about it.

    `events` are those since the look before. `explained` is there while somebody looks at one request's detail,
    `tunables` at the first look at an engine and whenever they have changed.
    """

    at_s: float
    status: StatusDocument | None = None
    requests: RequestsDocument | None = None
    events: list[EventRow] = msgspec.field(default_factory=list)
    explained: ExplainDocument | None = None
    tunables: TunablesDocument | None = None
    daemon_version: str | None = None  # where it is not this view's own
    trouble: str | None = None
    trouble_hint: str | None = None


class Sample(msgspec.Struct, array_like=True, frozen=True):
    """The figures of one moment that are drawn as lines. Totals count since the engine's start."""

    ttft_p99_s: float | None = None
    stall_s_total: float = 0.0
    preemption_total: int = 0
    raw_tok_s: float = 0.0


class Packed(msgspec.Struct, array_like=True, frozen=True):
    """A moment as it is held and written: `body` is zlib over MessagePack."""

    at_s: float
    sample: Sample
    body: bytes

    def moment(self) -> Moment:
        """Raises `UnreadableError` where the body is damaged, or from a view whose documents were others."""
        try:
            return msgspec.msgpack.decode(zlib.decompress(self.body), type=Moment)
        except (zlib.error, msgspec.DecodeError, msgspec.ValidationError) as error:
            raise UnreadableError(str(error)) from error


class UnreadableError(Exception):
    """A packed moment that cannot be shown."""


def pack(moment: Moment) -> Packed:
    """The moment and the few figures of it that are wanted without unpacking."""
    return Packed(moment.at_s, sample_of(moment.status), zlib.compress(msgspec.msgpack.encode(moment), _LEVEL))


def sample_of(status: StatusDocument | None) -> Sample:
    if status is None:
        return Sample()
    quality = status.quality
    return Sample(quality.ttft_s.p99, quality.stall_s_total, quality.preemption_total, quality.raw_tok_s)
