"""What the policy did to whom, kept until telemetry takes it along.

Numbers are read from SGLang's own requests at the moment of the change; nothing here is estimated.
"""

import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from tokenflow.events import Event, EventKind, ResumeHow, Term
from tokenflow.policy.plan import Decision
from tokenflow.policy.states import Reason
from tokenflow.policy.tunables import Tunables, plain
from tokenflow.sglang.tracker import TrackedRequest

KEPT_EVENTS = 1000
SLOW_CLIENT_CAUSE = "slow_client"  # its client does not drain its stream
ENGINE_CAUSE = "engine"  # beside the policy's own causes: SGLang's decode retraction
_NO_TERMS: Mapping[str, Term] = {}


class EventLog:
    """A bounded ring: what nobody takes in time is overwritten, and the gap shows in `sequence`."""

    def __init__(self) -> None:
        self._ring: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._sequence = 0

    def note(
        self,
        kind: EventKind,
        rid: str | None = None,
        reason: str | None = None,
        who: str | None = None,
        terms: Mapping[str, Term] = _NO_TERMS,
    ) -> None:
        """Stamps it with the present moment (CLOCK_MONOTONIC)."""
        self._sequence += 1
        self._ring.append(Event(self._sequence, time.monotonic(), kind, rid, reason, who, dict(terms)))

    def note_tuned(self, before: Tunables, after: Tunables, who: str | None) -> None:
        """One event for each value that is another now, the mode apart: it has an event of its own."""
        old = plain(before)
        for key, value in plain(after).items():
            if key != "mode" and value != old[key]:
                self.note(EventKind.TUNED, who=who, terms={"key": key, "old": old[key], "new": value})

    def take(self, most: int) -> list[Event]:
        """The oldest ones, at most `most`; they are not kept."""
        return [self._ring.popleft() for _ in range(min(most, len(self._ring)))]


class SwapEvents:
    """Pauses and resumes, with what SGLang's requests say about their KV."""

    def __init__(self, log: EventLog, bytes_per_token: float, *, has_host_pool: bool) -> None:
        self._log = log
        self._bytes_per_token = bytes_per_token
        self._has_host_pool = has_host_pool
        self._decided: dict[str, tuple[Decision, int, int]] = {}

    def decided(self, pauses: Iterable[Decision], known: Mapping[str, TrackedRequest]) -> None:
        """Before they are carried out: a pause takes the request's KV, and its figures, away."""
        self._decided = {}
        for decision in pauses:
            kv = known[decision.rid].req.kv
            kv_tokens = int(kv.kv_committed_len)
            unwritten_tokens = max(kv_tokens - int(kv.cache_protected_len), 0) if self._has_host_pool else 0
            self._decided[decision.rid] = (decision, kv_tokens, unwritten_tokens)

    def paused(self, entry: TrackedRequest, now_s: float) -> Reason | None:
        """The reason of the decision that took it out. `evict_bytes`: what had yet to be handed to HiCache then."""
        entry.paused_since_s = now_s
        found = self._decided.pop(entry.stream.rid, None)
        if found is None:
            return None
        decision, kv_tokens, unwritten_tokens = found
        terms: dict[str, Term] = {
            "action": decision.action.value,
            "cause": SLOW_CLIENT_CAUSE if entry.is_backlogged and not entry.is_held else decision.cause.value,
            "runway_s": _rounded(decision.runway_s),
            "required_runway_s": _rounded(decision.required_runway_s),
            "benefit_s": _rounded(decision.benefit_s),
            "kv_tokens": kv_tokens,
            "evict_bytes": self._bytes(unwritten_tokens),
        }
        reason = decision.reason
        if reason is Reason.PREEMPTED_OPERATOR and not entry.is_held:
            reason = Reason.PREEMPTED_SURPLUS
        self._log.note(EventKind.PREEMPTED, entry.stream.rid, reason.value, terms=terms)
        return reason

    def retracted(self, entries: Iterable[TrackedRequest], now_s: float) -> None:
        """SGLang itself has taken them out: the pool was full within a step."""
        for entry in entries:
            entry.paused_since_s = now_s
            runway_s = entry.stream.buffer.runway_s
            terms = {"cause": ENGINE_CAUSE, "runway_s": _rounded(runway_s)}
            self._log.note(EventKind.PREEMPTED, entry.stream.rid, Reason.PREEMPTED_KV_FULL.value, terms=terms)

    def resumed(self, entries: Iterable[TrackedRequest], now_s: float) -> None:
        """They have just come back: SGLang has matched, loaded and allocated their KV."""
        for entry in entries:
            since_s, entry.paused_since_s = entry.paused_since_s, None
            terms = self._kv_terms(entry.req)
            terms["paused_s"] = None if since_s is None else round(now_s - since_s, 3)
            self._log.note(EventKind.RESUMED, entry.stream.rid, terms=terms)

    def _kv_terms(self, req: Any) -> dict[str, Term]:
        loaded_tokens = int(req.materialized_host_hit_len())
        cached_tokens = int(req.prefix_len)
        # The last token has never been computed: it is what a running stream would have fed into its next step too.
        had_tokens = len(req.origin_input_ids) + len(req.output_ids) - 1
        recomputed_tokens = max(had_tokens - cached_tokens, 0)
        how_else = ResumeHow.RECOMPUTE if recomputed_tokens else ResumeHow.KEPT
        return {
            "how": (ResumeHow.LOAD if loaded_tokens else how_else).value,
            "cached_tokens": cached_tokens,
            "recomputed_tokens": recomputed_tokens,
            "load_tokens": loaded_tokens,
            "load_bytes": self._bytes(loaded_tokens),
        }

    def released(self, rid: str, tokens: int) -> None:
        """`tokens` of a paused stream's KV have left the device."""
        self._log.note(EventKind.RELEASED, rid, terms={"tokens": tokens, "released_bytes": self._bytes(tokens)})

    def _bytes(self, tokens: int) -> int:
        return round(tokens * self._bytes_per_token)


def _rounded(value: float | None) -> float | None:
    """JSON knows no infinity: nobody reads along, so there is no runway."""
    return None if value is None or value in (float("inf"), float("-inf")) or value != value else round(value, 4)
