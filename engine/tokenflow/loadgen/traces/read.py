"""Opens a trace file, packed with gzip or not, and finds out whose format it is."""

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tokenflow.errors import ConfigurationError, UsageError
from tokenflow.loadgen.traces import azure, burstgpt, mooncake, plain
from tokenflow.loadgen.traces.columns import TraceRowError
from tokenflow.loadgen.traces.trace import Trace, TraceFormat, TraceRequest

_GZIP_MAGIC = b"\x1f\x8b"
_HINT = "the formats of Azure, BurstGPT and Mooncake are read, and CSV with arrival_s,input_tokens,output_tokens"
_BY_COLUMNS: tuple[tuple[frozenset[str], TraceFormat, Callable[[Iterable[str]], Iterator[TraceRequest]]], ...] = (
    (azure.COLUMNS, TraceFormat.AZURE, azure.read),
    (burstgpt.COLUMNS, TraceFormat.BURSTGPT, burstgpt.read),
    (plain.COLUMNS, TraceFormat.PLAIN, plain.read),
)


def read_trace(path: Path) -> Trace:
    """Raises UsageError for a file that cannot be opened, ConfigurationError for contents that make no sense."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw.startswith(_GZIP_MAGIC) else raw).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not a text file", hint=_HINT, field="arrivals") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigurationError(f"{path} is a damaged gzip file: {error}", hint=_HINT, field="arrivals") from None
    except OSError as error:
        raise UsageError(
            f"cannot read the trace {path}: {error.strerror}", hint="use trace:FILE", field="arrivals"
        ) from None
    try:
        trace = _parse(text)
    except TraceRowError as error:
        raise ConfigurationError(f"{path}, line {error.line}: {error}", hint=_HINT, field="arrivals") from None
    if trace is None:
        raise ConfigurationError(f"{path} is in no known format", hint=_HINT, field="arrivals")
    if not trace.requests:
        raise ConfigurationError(f"{path} holds no request with input and output", hint=_HINT, field="arrivals")
    return trace


def _parse(text: str) -> Trace | None:
    """None where the first line tells no format."""
    first = text.lstrip().partition("\n")[0].strip()
    if first.startswith("{"):
        return Trace.of(TraceFormat.MOONCAKE, mooncake.read(io.StringIO(text)))
    columns = set(next(csv.reader([first]), []))
    for wanted, kind, read in _BY_COLUMNS:
        if wanted <= columns:
            return Trace.of(kind, read(io.StringIO(text, newline="")))
    return None
