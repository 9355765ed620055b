"""The vocabulary of the policy: one enum each for states, reasons, modes and variants.

Shared by JSON documents, the log, the metrics and the view, so that a word means the same everywhere.
They live here, and not in `tokenflow.wire`, because the policy imports nothing of ours.
"""

from enum import StrEnum


class RequestState(StrEnum):
    """Where a request stands. `preempted`, `offloading` and `loading` exist only while enforcing."""

    WAITING = "waiting"
    PREFILLING = "prefilling"
    RUNNING = "running"
    PREEMPTED = "preempted"
    OFFLOADING = "offloading"
    LOADING = "loading"
    FINISHED = "finished"
    ABORTED = "aborted"

    @property
    def is_live(self) -> bool:
        """True until the request has ended in one way or another."""
        return self not in (RequestState.FINISHED, RequestState.ABORTED)


class Reason(StrEnum):
    """Why a request runs, waits or was paused: the last decision about it."""

    RUNNING_STARVING = "running_starving"
    RUNNING_SURPLUS = "running_surplus"
    ADMITTED = "admitted"
    WAITING_CAPACITY = "waiting_capacity"
    WAITING_MEMORY = "waiting_memory"
    PREEMPTED_SURPLUS = "preempted_surplus"
    PREEMPTED_PRIORITY = "preempted_priority"
    PREEMPTED_KV_FULL = "preempted_kv_full"
    PREEMPTED_OPERATOR = "preempted_operator"
    LOADING = "loading"
    RECOMPUTING = "recomputing"
    OVERLOAD_FCFS = "overload_fcfs"


class Mode(StrEnum):
    """What the plugin may do: nothing, decide and log, or carry its decisions out."""

    OBSERVE = "observe"
    ENFORCE = "enforce"
    OFF = "off"


class Variant(StrEnum):
    """Which policy decides. See docs/policy.md."""

    TOKENFLOW = "tokenflow"
    PAPER = "paper"
    GUIDE = "guide"
    FCFS = "fcfs"


class RateSource(StrEnum):
    """Where a request's consumption rate comes from, weakest first."""

    DEFAULT = "default"
    CLASS = "class"
    HEADER = "header"
    BODY = "body"
    ACK = "ack"


class RequestClass(StrEnum):
    """The built-in classes. An operator's profile may define more, so rows carry plain strings."""

    READING = "reading"
    LISTENING = "listening"
    AGENT = "agent"
    BATCH = "batch"
