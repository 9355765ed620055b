"""The schedulers that TokenFlow is compared with, behind the simulator's one interface. Each names its source."""

from tokenflow.sim.baselines.make import BASELINES, make_baseline

__all__ = ["BASELINES", "make_baseline"]
