"""A discrete-event engine that asks the real policy, for GPUs that are not here (docs/simulate.md)."""
