"""Whether those who run should get a token before others are started: prefill holds up every running stream.

Not where the engine mixes them: there every step with prefill gives them theirs.
"""

import numpy as np

from tokenflow.policy.buffer import MAX_RATE_TOK_S, MIN_RATE_TOK_S
from tokenflow.policy.turn import Turn
from tokenflow.policy.urgency import Floats

_LEAST_GAIN_RATIO = 0.1  # of a step


def is_decode_first(turn: Turn, runs_s: Floats, group_s: float, first_count: int, dry_count: int) -> bool:
    """True if one decode step before the group saves the running readers more than it costs those who wait.

    `runs_s`: runways of the running rows, in their order; `group_s`: how long starting the group takes; `first_count`
    and `dry_count`: who waits for a first token, and paused readers who have nothing left.
    What a step saves is the runway that it adds, as far as the group would use it up. A reader as fast as the engine
    gains none, and one nearly as fast too little to count: a hundred of them would keep a newcomer waiting at every
    step until the starvation bound, and never be helped.
    """
    view, tunables = turn.view, turn.tunables
    step_s = view.engine.step_s
    if view.engine.has_mixed_steps or not (step_s > 0.0 and runs_s.size):
        return False
    lacking_s = group_s - runs_s
    short = (lacking_s > 0.0) & view.is_started[turn.running]  # hidden tokens give no runway
    if not short.any():
        return False
    rates = np.clip(view.rate_tok_s[turn.running[short]], MIN_RATE_TOK_S, MAX_RATE_TOK_S)
    gain_s = 1.0 / rates - step_s
    gain_s[gain_s < _LEAST_GAIN_RATIO * step_s] = 0.0
    saved_s = np.minimum(lacking_s[short], gain_s).sum()
    lost_s = step_s * (tunables.weight_ttft * first_count + tunables.weight_stall * dry_count)
    return bool(tunables.weight_stall * saved_s > lost_s)
