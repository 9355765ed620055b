"""When a stream may be paused: its runway must outlast the way out and back (docs/policy.md).

The condition is the paper's (section 4): unread tokens of at least factor x rate x (evict + load + schedule), in
seconds, plus the time for which the place is lent, and never less than what the newcomer's prefill takes in all.
"""

import math

_ROUNDING_TOKENS = 1e-9  # 20 tok/s x 0.5 s must be 10 tokens, not 11


def required_runway_s(
    *,
    evict_s: float,
    load_s: float,
    schedule_s: float,
    safety_factor: float,
    hold_s: float = 0.0,
    prefill_s: float | None = None,
    reserve_s: float = 0.0,
    surplus_s: float = 0.0,
) -> float:
    """Seconds of runway below which pausing is unsafe.

    `hold_s` is the time for which the place is lent before the victim could come back: a newcomer's prefill and
    first run, 0 for a rescue. `prefill_s` None says that no newcomer is known, and leaves that term out.
    """
    transition_s = safety_factor * (evict_s + load_s + schedule_s) + hold_s
    floor_s = 0.0 if prefill_s is None else prefill_s + reserve_s
    return max(transition_s, floor_s, surplus_s)


def required_tokens(rate_tok_s: float, runway_s: float) -> int:
    """The least whole number of unread tokens that lasts `runway_s` at `rate_tok_s`."""
    return max(0, math.ceil(rate_tok_s * runway_s - _ROUNDING_TOKENS))
