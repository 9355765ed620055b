"""What the policy and the operators did, one event a decision, as the plugin tells it and as operators read it.

Ids, counts, times and enums only, except `reason` of a fault, which is the text of our own exception.
"""

from enum import StrEnum

import msgspec

Term = float | int | str | bool | None


class EventKind(StrEnum):
    """What happened. The terms that each kind carries are listed in docs/api.md."""

    PREEMPTED = "preempted"
    RESUMED = "resumed"
    RELEASED = "released"  # the device copy of a paused stream was given up
    HELD = "held"  # an operator's pause
    UNHELD = "unheld"  # an operator's resume, or the end of `enforce`
    ABORTED = "aborted"  # ended by an operator
    MODE = "mode"
    TUNED = "tuned"
    EFFECT = "effect"  # what readers experienced before and after a change
    OVERLOAD_ENTERED = "overload_entered"
    OVERLOAD_LEFT = "overload_left"
    FAULT = "fault"
    DISABLED = "disabled"  # the plugin has turned itself off
    ENGINE_STARTED = "engine_started"
    ENGINE_ADOPTED = "engine_adopted"  # by a daemon that another one has left it to
    ENGINE_FAILED = "engine_failed"
    ENGINE_STOPPED = "engine_stopped"
    LOST = "lost"  # events that nobody will see: the reader, or the daemon, was too slow


class ResumeHow(StrEnum):
    """Where the KV of a resumed stream came from."""

    KEPT = "kept"  # all of it was still on the device
    LOAD = "load"  # some of it came from the host
    RECOMPUTE = "recompute"  # some of it had to be computed again, and nothing came from the host


class Event(msgspec.Struct, array_like=True):
    """One event on the engine's link. `sequence` counts up by one, so that the daemon notices what it has missed."""

    sequence: int
    stamp_s: float  # CLOCK_MONOTONIC
    kind: EventKind
    rid: str | None = None
    reason: str | None = None
    who: str | None = None  # "uid=1000 pid=4711" where an operator did it
    terms: dict[str, Term] = {}


class EventRow(msgspec.Struct, kw_only=True):
    """One event for operators: `GET /v1/events`, one a line. `sequence` is the daemon's own, `at` is RFC 3339, UTC."""

    sequence: int
    at: str
    kind: EventKind
    rid: str | None = None
    reason: str | None = None
    who: str | None = None
    terms: dict[str, Term] = {}
