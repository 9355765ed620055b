"""How every request stands right now: runway, what a pause would require of it, and why it is where it is.

For rows, metrics and the view; `plan` itself does not need it. Computed at the pace of telemetry, not of steps.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.costs import departures
from tokenflow.policy.overload import admitted
from tokenflow.policy.plan import Plan
from tokenflow.policy.states import Reason
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.urgency import runways
from tokenflow.policy.view import LOADING, PREEMPTED, PREFILLING, RUNNING, WAITING, View


@dataclass(frozen=True, slots=True)
class Standing:
    """Columns over all rows of a view. Seconds; infinite runway where nobody reads along."""

    runway_s: NDArray[np.float64]
    required_runway_s: NDArray[np.float64]  # with its KV sent away, and no particular newcomer
    preemptible: NDArray[np.bool_]  # running, safe, and not one that must stay
    reasons: list[Reason | None]  # None: its earlier reason still holds


def standing(view: View, tunables: Tunables, plan: Plan) -> Standing:
    """The columns, with the reasons of `plan` for whom it changes."""
    rows = np.arange(len(view))
    runway_s = runways(view, rows)
    away = departures(view, rows, tunables.restore)
    required_s = tunables.safety_factor * (away.evict_s + away.load_s + view.engine.costs.schedule_s)
    safe = runway_s >= required_s
    running = view.state == RUNNING
    return Standing(runway_s, required_s, safe & running & view.may_pause, _reasons(view, tunables, plan, safe))


def _reasons(view: View, tunables: Tunables, plan: Plan, safe: NDArray[np.bool_]) -> list[Reason | None]:
    found: list[Reason | None] = [None] * len(view)
    for row in (view.state == RUNNING).nonzero()[0].tolist():
        found[row] = Reason.RUNNING_SURPLUS if safe[row] else Reason.RUNNING_STARVING
    waiting = (view.state == WAITING).nonzero()[0].tolist()
    outside = ~admitted(view, tunables) if plan.is_overloaded and waiting else None
    for row in waiting:
        shut_out = outside is not None and outside[row]
        found[row] = Reason.OVERLOAD_FCFS if shut_out else Reason.WAITING_CAPACITY
    for row in (view.is_held & (view.state <= PREEMPTED)).nonzero()[0].tolist():
        found[row] = Reason.PREEMPTED_OPERATOR
    for row in plan.blocked:
        if view.state[row] == WAITING and found[row] is Reason.WAITING_CAPACITY:
            found[row] = Reason.WAITING_MEMORY
    for row in (view.state == PREFILLING).nonzero()[0].tolist():
        found[row] = Reason.ADMITTED
    for row in (view.state == LOADING).nonzero()[0].tolist():
        found[row] = Reason.LOADING
    for decision in plan.decisions:
        found[decision.row] = decision.reason
    return found
