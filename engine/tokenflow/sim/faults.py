"""What ends a simulation: a scheduler that asks for the impossible, or a run that cannot go on."""

from tokenflow.errors import SimulationError

_HINT = "a fault of the simulator or of the policy: report it with this command line"


def fault(message: str) -> SimulationError:
    """To be raised."""
    return SimulationError(message, hint=_HINT)
