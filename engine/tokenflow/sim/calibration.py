"""A performance model of what `tfctl profile measure` has measured: the `[performance]` section of a profile."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from tokenflow.errors import ConfigurationError
from tokenflow.sim.performance import LinearModel, Link

_HINT = "measure one: tfctl profile measure; only its [performance] section is read"


class _Step(msgspec.Struct, kw_only=True):
    fixed_s: float
    token_s: float
    row_s: float = 0.0
    how: str = "measured"
    source: str = ""


class _Copy(msgspec.Struct, kw_only=True):
    bytes_s: float
    both_bytes_s: float | None = None
    fixed_s: float | None = None


class _Kv(msgspec.Struct, kw_only=True):
    bytes_per_token: float
    pool_tokens: int


class _Performance(msgspec.Struct, kw_only=True):
    """Of the profile's schema what a simulation needs; other keys are the profile's own business."""

    decode: _Step
    prefill: _Step
    kv: _Kv
    d2h: _Copy | None = None
    h2d: _Copy | None = None


def read_calibration(path: Path) -> LinearModel:
    """The model of a profile file. Raises ConfigurationError for one that cannot be read or lacks what is needed.

    Without copy figures there is no link to speak of: copies take a day, and nobody would make them.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}", hint=_HINT, field="calibrate") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}", hint=_HINT, field="calibrate") from None
    if not isinstance(document.get("performance"), dict):
        raise ConfigurationError(f"{path} has no [performance] section", hint=_HINT, field="calibrate")
    try:
        found = msgspec.convert(document["performance"], _Performance)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path}: [performance]: {error}", hint=_HINT, field="calibrate") from None
    return _model(path, document, found)


def _model(path: Path, document: dict[str, Any], found: _Performance) -> LinearModel:
    d2h, h2d = found.d2h or _NO_COPY, found.h2d or _NO_COPY
    made = document["performance"].get("made", {})
    served = document.get("model", {})
    return LinearModel(
        gpu=str(made.get("machine", path.stem)) if isinstance(made, dict) else path.stem,
        model=str(served.get("served_name", "unnamed")) if isinstance(served, dict) else "unnamed",
        source=f"{found.decode.how} ({found.decode.source or 'no source is named'}), {path.name}",
        kv_bytes_per_token=found.kv.bytes_per_token,
        link=Link(
            d2h_bytes_s=d2h.bytes_s,
            h2d_bytes_s=h2d.bytes_s,
            fixed_s=max(d2h.fixed_s or 0.0, h2d.fixed_s or 0.0),
            h2d_contention_ratio=min((h2d.both_bytes_s or h2d.bytes_s) / h2d.bytes_s, 1.0),
        ),
        kv_token_count=found.kv.pool_tokens,
        step_fixed_s=found.decode.fixed_s,
        stream_s=found.decode.row_s,
        kv_token_s=found.decode.token_s,
        piece_s=found.prefill.row_s,
        new_token_s=found.prefill.token_s,
        prefill_fixed_s=found.prefill.fixed_s,
    )


_NO_COPY = _Copy(bytes_s=1.0)
