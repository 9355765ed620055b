"""The engine that commands go to, and how long they may take."""

from typing import TYPE_CHECKING

from tokenflow.errors import ConflictError
from tokenflowd.command_channel import COMMAND_LIMIT_S
from tokenflowd.engine_process import EngineProcess

if TYPE_CHECKING:
    from tokenflowd.context import Context

LIMIT_S = COMMAND_LIMIT_S


def engine_of(context: "Context", why_not: str | None) -> EngineProcess | None:
    """The engine that serves. Without one: ConflictError, which ends in `why_not`, or None where that is None."""
    engine = context.supervisor.lifecycle.engine
    if engine is not None and engine.serving_since_s is not None:
        return engine
    if why_not is None:
        return None
    raise ConflictError(f"no engine is serving, {why_not}", hint="tfctl start")
