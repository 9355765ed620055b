"""What an explanation says, and the one that needs nothing but numbers. Loads nothing heavy."""

import math
from dataclasses import dataclass, field

from tokenflow.policy.buffer import sane_rate
from tokenflow.policy.safety import required_runway_s, required_tokens

Term = float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """`runway_s`, `required_runway_s` and `required_tokens` are None where nobody reads along.

    `required_tokens` is the least whole number of unread tokens that is safe. `terms` holds every number that went
    into it, by the names of docs/policy.md.
    """

    runway_s: float | None
    required_runway_s: float | None
    required_tokens: int | None
    preemptible: bool
    rid: str | None = None
    state: str | None = None
    reason: str | None = None
    terms: dict[str, Term] = field(default_factory=dict)


def explain_numbers(
    unread_tokens: float,
    rate_tok_s: float,
    *,
    evict_s: float = 0.0,
    load_s: float = 0.0,
    schedule_s: float = 0.0,
    safety_factor: float = 1.0,
    prefill_s: float | None = None,
    reserve_s: float = 0.0,
) -> Explanation:
    """The safety condition on numbers alone. `prefill_s` None: no newcomer is known, and that term is left out."""
    rate = sane_rate(rate_tok_s)
    if rate is None:  # nobody reads along: nobody can run dry
        return Explanation(None, None, None, True)
    rate_tok_s = rate
    runway_s = max(unread_tokens, 0.0) / rate_tok_s
    transition_s = evict_s + load_s + schedule_s
    required_s = required_runway_s(
        evict_s=evict_s,
        load_s=load_s,
        schedule_s=schedule_s,
        safety_factor=safety_factor,
        prefill_s=prefill_s,
        reserve_s=reserve_s,
    )
    protected_s = safety_factor * transition_s
    terms: dict[str, Term] = {
        "unread_tokens": unread_tokens,
        "rate_tok_s": rate_tok_s,
        "evict_s": evict_s,
        "load_s": load_s,
        "schedule_s": schedule_s,
        "transition_s": transition_s,
        "safety_factor": safety_factor,
        "protected_s": protected_s,
        "protected_tokens": rate_tok_s * protected_s,
        "prefill_s": prefill_s,
        "reserve_s": reserve_s if prefill_s is not None else None,
        "prefill_floor_s": None if prefill_s is None else prefill_s + reserve_s,
        "margin_s": runway_s - required_s,
    }
    needed = required_tokens(rate_tok_s, required_s)
    return Explanation(runway_s, required_s, needed, unread_tokens >= needed, terms=rounded(terms))


def rounded(terms: dict[str, Term]) -> dict[str, Term]:
    """Nine digits after the point, so that 0.1 + 0.2 reads as people expect; infinities, which JSON lacks, as None."""
    found: dict[str, Term] = {}
    for key, value in terms.items():
        if isinstance(value, float):
            found[key] = round(value, 9) if math.isfinite(value) else None
        else:
            found[key] = value
    return found
