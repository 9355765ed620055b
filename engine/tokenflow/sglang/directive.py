"""What rank 0 has decided, in the terms that every rank can carry out alike.

A directive names requests and absolute token positions only. It is pickled into SGLang's own broadcast where there
are several tensor-parallel ranks, so that all of them carry it out at the same place of their loops.
"""

import msgspec

from tokenflow.policy.states import Mode


class WriteUpTo(msgspec.Struct, frozen=True, gc=False):
    """KV of a running request from its beginning up to `up_to_tokens` goes into the tree, and on to the host."""

    rid: str
    up_to_tokens: int


class DeviceRelease(msgspec.Struct, frozen=True, gc=False):
    """At least `tokens` of a paused request's device copy are freed, from its end.

    What the host does not have is written there first and freed when it has arrived; with `may_give_up` it is
    dropped at once and computed again at the resume.
    """

    rid: str
    tokens: int
    may_give_up: bool = False


class Directive(msgspec.Struct, frozen=True, gc=False):
    """One turn's orders. It replaces the one before it whole; in any mode but enforce there are no orders in it.

    `pauses` come first, then `releases` and `writes`; the `starts` are handed out, in order, when SGLang next builds
    a prefill batch. `recomputes` are those of them whose host copy is not to be loaded. `held_back` are the waiting
    requests that rank 0 knows and does not start now: whoever is in neither list is admitted as stock SGLang would.
    `retraction_order` are running requests, the one to leave first at the end.
    """

    sequence: int
    mode: Mode
    pauses: tuple[str, ...] = ()
    releases: tuple[DeviceRelease, ...] = ()
    writes: tuple[WriteUpTo, ...] = ()
    starts: tuple[str, ...] = ()
    recomputes: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    retraction_order: tuple[str, ...] = ()
