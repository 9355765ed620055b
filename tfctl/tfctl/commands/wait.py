"""`tfctl wait`"""

import time
from enum import StrEnum
from typing import Annotated

import typer

from tfctl.client import Client, no_daemon
from tfctl.documents import WaitDocument
from tfctl.options import Command
from tfctl.output import write_json, write_line
from tfctl.session import Session
from tokenflow.errors import (
    BadAnswerError,
    DaemonUnreachableError,
    EngineFailedError,
    TimedOutError,
    UnsupportedError,
)
from tokenflow.policy.states import Mode
from tokenflow.wire import EngineState, PluginState, StatusDocument

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_POLL_S = 0.25
_HEARD_WITHIN_S = 10.0  # an engine whose plugin has not been heard by then has none
_SERVING = (EngineState.SERVING, EngineState.BUSY)


class Goal(StrEnum):
    """What can be waited for."""

    SERVING = "serving"
    STOPPED = "stopped"
    DRAINED = "drained"


@app.command(cls=Command)
def wait(
    ctx: typer.Context,
    goal: Annotated[Goal, typer.Option("--for", help="What to wait for. Drained: no request is live.")],
) -> None:
    """Wait until the engine serves, is drained or has stopped.

    Exit code: 0 reached; 75 not within --timeout; 1 at once when the engine has failed. Without --timeout it waits
    for as long as it takes. Drained is refused where nobody counts requests: in mode off, or without the plugin.
    """
    session = Session(ctx)
    limit_s = session.options.timeout_s
    started_s = time.monotonic()
    while True:
        state, is_reached = _look(session, goal)
        waited_s = time.monotonic() - started_s
        if is_reached:
            break
        if limit_s is not None and waited_s >= limit_s:
            raise TimedOutError(
                f"the engine is {state}, not {goal}, after {limit_s:g} s", hint="see where it stands: tfctl status"
            )
        time.sleep(_POLL_S if limit_s is None else max(0.0, min(_POLL_S, limit_s - waited_s)))
    if session.as_json:
        write_json(WaitDocument(for_=goal, state=state, waited_s=round(waited_s, 3)))
    elif session.is_chatty:
        write_line(f"{goal} after {waited_s:.1f} s")


def _look(session: Session, goal: Goal) -> tuple[EngineState, bool]:
    """The engine's state, and whether the goal is reached. Raises where it never will be."""
    path = session.find_socket()
    if path is None:
        return _without_daemon(goal)
    try:
        document = Client(path).get("/v1/status", StatusDocument)
    except BadAnswerError:
        raise
    except DaemonUnreachableError:
        return _without_daemon(goal)
    engine = document.engine
    if engine.state is EngineState.FAILED and goal is not Goal.STOPPED:
        raise EngineFailedError(
            f"the engine has failed: {engine.reason or 'no reason known'}",
            hint="see why: tfctl logs; then: tfctl start",
        )
    match goal:
        case Goal.SERVING:
            return engine.state, engine.state in _SERVING
        case Goal.STOPPED:
            # A failed engine has stopped as well: no process of it is left.
            return engine.state, engine.state in (EngineState.STOPPED, EngineState.FAILED)
        case Goal.DRAINED:
            return engine.state, _is_drained(document)


def _without_daemon(goal: Goal) -> tuple[EngineState, bool]:
    if goal is Goal.SERVING:
        raise no_daemon()
    return EngineState.STOPPED, True


def _is_drained(document: StatusDocument) -> bool:
    if document.engine.state is EngineState.STOPPED:
        return True
    if document.engine.state is EngineState.STARTING:
        return False
    engine, policy = document.engine, document.policy
    is_silent = engine.plugin is PluginState.ABSENT and (engine.uptime_s or 0.0) < _HEARD_WITHIN_S
    if policy.mode is Mode.OFF or (engine.plugin is not PluginState.ACTIVE and not is_silent):
        why = "the mode is off" if engine.plugin is PluginState.ACTIVE else f"the plugin is {engine.plugin}"
        raise UnsupportedError(
            f"nobody counts the requests: {why}", hint="let them finish and end the engine: tfctl stop --drain 600"
        )
    if policy.mode is None:
        return False  # the scheduler has not been heard yet
    capacity = document.capacity
    return capacity.running_count + capacity.waiting_count + capacity.preempted_count == 0
