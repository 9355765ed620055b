"""Numbers as people read them, bars and glyphs. Shared by tfctl's tables and the live view; no colour here."""

from tokenflow.policy.states import RateSource, RequestState
from tokenflow.wire import EngineState

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_RATE_SOURCES = {
    RateSource.DEFAULT: "def",
    RateSource.CLASS: "cls",
    RateSource.HEADER: "hdr",
    RateSource.BODY: "body",
    RateSource.ACK: "ack",
}
# (glyph, its plain twin)
_ENGINE_GLYPHS = {
    EngineState.STOPPED: ("○", "o"),
    EngineState.STARTING: ("◐", "~"),
    EngineState.SERVING: ("●", "*"),
    EngineState.BUSY: ("◉", "*"),
    EngineState.DRAINING: ("◑", "~"),
    EngineState.WEDGED: ("▲", "!"),
    EngineState.FAILED: ("✗", "x"),
}
_REQUEST_GLYPHS = {
    RequestState.WAITING: ("…", "."),
    RequestState.PREFILLING: ("»", ">"),
    RequestState.RUNNING: ("▶", "*"),
    RequestState.PREEMPTED: ("‖", "="),
    RequestState.OFFLOADING: ("↥", "^"),
    RequestState.LOADING: ("↧", "v"),
    RequestState.FINISHED: ("✓", "+"),
    RequestState.ABORTED: ("✗", "x"),
}


def dash(*, unicode: bool = True) -> str:
    """What stands for null."""
    return "–" if unicode else "-"


def seconds(value_s: float | None, *, unicode: bool = True) -> str:
    """Three figures at most: `4 ms`, `0.42 s`, `3.4 s`, `42 s`, `2m05s`, `1h07m`, `3d04h`."""
    if value_s is None:
        return dash(unicode=unicode)
    size_s = abs(value_s)
    if size_s == 0:
        return "0 s"
    if size_s < 0.0995:
        return f"{value_s * 1000:.0f} ms"
    if size_s < 0.995:
        return f"{value_s:.2f} s"
    if size_s < 9.95:
        return f"{value_s:.1f} s"
    whole_s = round(size_s)
    sign = "-" if value_s < 0 else ""
    if whole_s < 100:
        return f"{sign}{whole_s} s"
    if whole_s < 3600:
        return f"{sign}{whole_s // 60}m{whole_s % 60:02d}s"
    if whole_s < 86400:
        return f"{sign}{whole_s // 3600}h{whole_s % 3600 // 60:02d}m"
    return f"{sign}{whole_s // 86400}d{whole_s % 86400 // 3600:02d}h"


def figure(value: float | None, *, unicode: bool = True) -> str:
    """A number without its unit: `0.5`, `12.3`, `640`."""
    if value is None:
        return dash(unicode=unicode)
    return f"{value:.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.1f}"


def rate(value_tok_s: float | None, *, unicode: bool = True) -> str:
    """`20 tok/s`"""
    return dash(unicode=unicode) if value_tok_s is None else f"{figure(value_tok_s)} tok/s"


def percent(ratio: float | None, *, unicode: bool = True) -> str:
    return dash(unicode=unicode) if ratio is None else f"{ratio * 100:.0f} %"


def size(value_bytes: float | None, *, unicode: bool = True) -> str:
    """`640 KiB`, `1.5 GiB`"""
    if value_bytes is None:
        return dash(unicode=unicode)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value_bytes) < 1024:
            return f"{figure(value_bytes)} {unit}"
        value_bytes /= 1024
    return f"{figure(value_bytes)} TiB"


def bar(ratio: float, width: int, *, unicode: bool = True) -> str:
    """A bar of `width` cells, `ratio` of it full; anything above zero shows."""
    ratio = min(max(ratio, 0.0), 1.0)
    if not unicode:
        full = min(width, round(ratio * width + (0.499 if 0 < ratio * width < 0.5 else 0)))
        return "#" * full + "." * (width - full)
    eighths = max(round(ratio * width * 8), 1 if ratio > 0 else 0)
    text = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return text.ljust(width, "·")


def rate_source(source: RateSource) -> str:
    """Short enough for a column."""
    return _RATE_SOURCES[source]


def engine_glyph(state: EngineState, *, unicode: bool = True) -> str:
    return _ENGINE_GLYPHS[state][0 if unicode else 1]


def request_glyph(state: RequestState, *, unicode: bool = True) -> str:
    return _REQUEST_GLYPHS[state][0 if unicode else 1]
