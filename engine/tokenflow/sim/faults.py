"""What ends a simulation: a scheduler that asks for the impossible, or a run that cannot go on."""

from tokenflow.errors import OperationError


class SimulationError(OperationError):
    code = "simulation"

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="this is a fault of the simulator or of the policy: please report the command")
