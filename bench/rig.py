"""The engine tests' place of its own, for benchmarks that need the daemon too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from engine_rig import Rig

__all__ = ["Rig"]
