"""What the HTTP process tells the scheduler about a request, carried inside the request itself.

It rides in `sampling_params.custom_params` under a private key, as SGLang's own private transports do, so it
arrives with the request on every tensor-parallel rank and cannot be late. Custom logit processors are the only
other readers of that dict.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from tokenflow.policy.states import RateSource
from tokenflow.sglang.readers import Reader

KEY = "__tokenflow"
_Carried = tuple[str, float | None, RateSource, float, str | None, bool, float | None, bool]


@dataclass(frozen=True, slots=True)
class Annotation:
    """`arrival_s` is the CLOCK_MONOTONIC stamp at which the HTTP process got the request."""

    reader: Reader
    arrival_s: float
    parent_rid: str | None
    is_streamed: bool = False


def attach(sampling_params: Any, annotation: Annotation) -> None:
    """Adds the annotation to a request's sampling parameters; other custom parameters stay."""
    reader = annotation.reader
    value = [
        reader.class_name,
        reader.rate_tok_s,
        reader.rate_source.value,
        annotation.arrival_s,
        annotation.parent_rid,
        annotation.is_streamed,
        reader.max_rate_tok_s,
        reader.needs_ack,
    ]
    sampling_params.custom_params = {**(sampling_params.custom_params or {}), KEY: value}


def attach_hidden(sampling_params: Any) -> None:
    """Marks a request that is nobody's: SGLang's own warm-up. It is not tracked."""
    sampling_params.custom_params = {**(sampling_params.custom_params or {}), KEY: None}


def is_hidden(sampling_params: Any) -> bool:
    custom_params = sampling_params.custom_params
    return isinstance(custom_params, dict) and KEY in custom_params and custom_params[KEY] is None


def read(sampling_params: Any) -> Annotation | None:
    """The annotation of a request, or None for one that did not come through our middleware."""
    custom_params = sampling_params.custom_params
    if not isinstance(custom_params, dict) or custom_params.get(KEY) is None:
        return None
    try:
        class_name, rate_tok_s, rate_source, arrival_s, parent_rid, is_streamed, cap_tok_s, needs_ack = msgspec.convert(
            custom_params[KEY], _Carried
        )
    except msgspec.ValidationError:
        return None  # by a route that we do not know, with a client's own idea of it
    return Annotation(
        Reader(class_name, rate_tok_s, rate_source, cap_tok_s, needs_ack), arrival_s, parent_rid, is_streamed
    )
