"""Stand-in for torchvision: what SGLang's and transformers' image configurations name at import.

The server serves text, so no image is ever transformed; a transform that is called raises StandInError.
"""

from enum import Enum

from tokenflow.sglang.standins.placeholder import StandIn, refuse


class InterpolationMode(Enum):
    """The resampling filters, by torchvision's names: image configurations use them as default values."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def _fallback(module: str, name: str) -> object:
    return refuse(f"{module}.{name}")


STAND_IN = StandIn(
    package="torchvision",
    modules={
        "torchvision": {"__version__": "0.0.0"},
        "torchvision.io": {},
        "torchvision.transforms": {"InterpolationMode": InterpolationMode},
        "torchvision.transforms.functional": {"InterpolationMode": InterpolationMode},
        "torchvision.transforms.v2": {},
        "torchvision.transforms.v2.functional": {},
    },
    fallback=_fallback,
)
