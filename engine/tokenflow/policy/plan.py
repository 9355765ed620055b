"""What a decision says: only what changes, in the order in which it is to be carried out."""

from enum import StrEnum

import msgspec

from tokenflow.policy.carry import Carry
from tokenflow.policy.states import Reason


class Action(StrEnum):
    """What is to happen to a request."""

    PAUSE_KEEP = "pause_keep"  # takes its slot only: the KV stays on the device while there is room
    PAUSE_OFFLOAD = "pause_offload"  # what is not on the host is written there, then the device pages are freed
    PAUSE_DROP = "pause_drop"  # the device pages are freed and recomputed later
    ADMIT = "admit"  # first prefill
    RESUME = "resume"  # all of its KV is on the device
    RESUME_LOAD = "resume_load"  # the host's copy is loaded, the rest recomputed
    RESUME_RECOMPUTE = "resume_recompute"

    @property
    def is_pause(self) -> bool:
        return self in _PAUSES


_PAUSES = frozenset({Action.PAUSE_KEEP, Action.PAUSE_OFFLOAD, Action.PAUSE_DROP})


class Cause(StrEnum):
    """Which rule made the decision."""

    FREE_PLACE = "free_place"  # a slot and pages were free
    FIRST_TOKEN = "first_token"  # a swap for somebody's first token
    RESCUE = "rescue"  # a swap for a paused stream that would run dry
    SHARE = "share"  # turns that other schedulers take in the simulator; ours makes no such swap
    STARVATION_BOUND = "starvation_bound"
    KV_FULL = "kv_full"
    OPERATOR = "operator"
    OVERLOAD = "overload"


class Decision(msgspec.Struct, frozen=True, gc=False):
    """One change, with the terms that it was made on (`explain` gives all of them).

    Pauses carry the victim's `runway_s` and what was required of it; starts carry their urgency and, for a swap,
    the benefit it was let through with. `partner_row` is the other side of a swap, None where there is none.
    """

    rid: str
    row: int
    action: Action
    reason: Reason
    cause: Cause
    urgency_s: float | None = None
    runway_s: float | None = None
    required_runway_s: float | None = None
    benefit_s: float | None = None
    partner_row: int | None = None


class Write(msgspec.Struct, frozen=True, gc=False):
    """KV tokens of a running request that are to be copied to the host during the next step."""

    rid: str
    row: int
    tokens: int


class Release(msgspec.Struct, frozen=True, gc=False):
    """Device KV of a paused request that has to make room: at least `tokens` are freed.

    `write_tokens` of them are copied to the host before; the others the host has already, or they are given up and
    computed again at the resume (only where running streams could not grow otherwise).
    """

    rid: str
    row: int
    tokens: int
    write_tokens: int = 0


class Plan(msgspec.Struct, frozen=True, gc=False):
    """A decision. `pauses` come before `starts`; both are in order.

    `writes` are copies to the host for the next step, in order, already within the transfer budget. `releases` are
    paused streams whose device copies make the room that starts and growth need. `drain_first`: let the step in
    flight finish, so that no token of a victim is lost.
    """

    carry: Carry
    pauses: tuple[Decision, ...] = ()
    starts: tuple[Decision, ...] = ()
    writes: tuple[Write, ...] = ()
    releases: tuple[Release, ...] = ()
    blocked: tuple[int, ...] = ()  # rows passed over for want of pages: `reasons` says waiting_memory for them

    @property
    def drain_first(self) -> bool:
        return bool(self.pauses)

    @property
    def is_overloaded(self) -> bool:
        return self.carry.is_overloaded

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """All changes, in the order in which they are carried out."""
        return self.pauses + self.starts
