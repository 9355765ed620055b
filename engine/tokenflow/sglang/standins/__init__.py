"""Stand-ins for three packages that SGLang 0.5.23 imports at start and never calls while it serves text on a CPU.

`triton` (about 900 MB) compiles GPU kernels, `torchvision` on the package index is built for CUDA, and so is
`sgl_kernel`. A text server on a CPU needs their names only: decorators at module level, annotations, base classes.
Whatever is *called* that only the real package can do raises `StandInError`, so nothing is computed wrongly.

A package that is really installed is never stood in for: see `finder.install`.
"""

from tokenflow.sglang.standins.finder import StandInFinder, install, missing_packages
from tokenflow.sglang.standins.placeholder import StandInError

__all__ = ["StandInError", "StandInFinder", "install", "missing_packages"]
