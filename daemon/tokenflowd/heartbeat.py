"""The daemon's sign of life to the service manager, from its own control loop, and the line of `systemctl status`."""

import asyncio
from collections.abc import Callable

import structlog

from tokenflow.wire import EngineState, StatusDocument
from tokenflowd.changes import Changes
from tokenflowd.service_manager import ServiceManager

log = structlog.get_logger()
_TURN_S = 5.0
_EXTENSION_S = 30.0


def line_of(document: StatusDocument) -> str:
    """`engine serving (profile demo-cpu): 3 running, 1 waiting, 2 preempted`"""
    engine, capacity = document.engine, document.capacity
    text = f"engine {engine.state.value}" + (f" (profile {engine.profile})" if engine.profile else "")
    if engine.state in (EngineState.SERVING, EngineState.BUSY, EngineState.WEDGED, EngineState.DRAINING):
        counts = (f"{capacity.running_count} running", f"{capacity.waiting_count} waiting")
        text += f": {', '.join((*counts, f'{capacity.preempted_count} preempted'))}"
    elif engine.progress or engine.reason:
        text += f": {engine.progress or engine.reason}"
    return text


def line_told(make: Callable[[], StatusDocument]) -> str:
    """As `line_of`. A status that cannot be made is a fault of ours that must not end the daemon: streams go on."""
    try:
        return line_of(make())
    except Exception:
        log.exception("status_failed")
        return "the status cannot be made: see the log"


async def beat(manager: ServiceManager, make: Callable[[], StatusDocument], changes: Changes) -> None:
    """Until it is cancelled. A loop that hangs sends nothing: that is what the watchdog is for."""
    turn_s = _TURN_S if manager.watchdog_s is None else min(_TURN_S, manager.watchdog_s / 3)
    told = ""
    while True:
        if manager.watchdog_s is not None:
            manager.alive()
        line = line_told(make)
        if line != told and manager.status(line):
            told = line
        await changes.wait(turn_s)


async def extend(manager: ServiceManager) -> None:
    """While the daemon ends: asks for more time again and again, until it is cancelled."""
    while True:
        manager.extend(_EXTENSION_S)
        if manager.watchdog_s is not None:
            manager.alive()
        await asyncio.sleep(min(_EXTENSION_S / 3, (manager.watchdog_s or _EXTENSION_S) / 3))
