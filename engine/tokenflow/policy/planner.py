"""The one entry point: `plan(view, tunables)` of whichever variant is in force."""

from collections.abc import Callable

import numpy as np

from tokenflow.policy.plan import Plan
from tokenflow.policy.states import Variant
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.variants.fcfs import decide as decide_fcfs
from tokenflow.policy.variants.guide import decide as decide_guide
from tokenflow.policy.variants.paper import decide as decide_paper
from tokenflow.policy.variants.tokenflow import decide as decide_tokenflow
from tokenflow.policy.view import View

_VARIANTS: dict[Variant, Callable[[View, Tunables], Plan]] = {
    Variant.TOKENFLOW: decide_tokenflow,
    Variant.PAPER: decide_paper,
    Variant.GUIDE: decide_guide,
    Variant.FCFS: decide_fcfs,
}


def plan(view: View, tunables: Tunables) -> Plan:
    """What changes now. A pure function: the same view and tunables give the same plan, whatever the rows' order.

    The caller puts `Plan.carry` into the next view; nothing else is remembered between decisions.
    """
    with np.errstate(invalid="ignore"):  # a column may hold anything; what comes of it is brought into range
        return _VARIANTS[tunables.variant](view, tunables)
