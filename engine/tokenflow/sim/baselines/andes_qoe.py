"""What a request's QoE will be at a horizon, by Andes' measure, if it is served until then and if it is not.

At a moment H the measure is 1 - S_delay/S_whole over the tokens that were due by then, which is the area under what
the reader has read over the area under what it would ideally have read (both versions of the paper agree there).
"""

from dataclasses import dataclass

import numpy as np

from tokenflow.policy.view import View
from tokenflow.sim.performance import Floats


@dataclass(frozen=True, slots=True)
class Readers:
    """Columns over the view's rows. `read_area` is the integral of what was read, in token-seconds, up to now."""

    rate_tok_s: Floats
    unread_tokens: Floats
    read_tokens: Floats
    read_area: Floats
    due_s: Floats  # since when it should have been reading: negative before the target

    def served(self, horizon_s: float, tok_s: float, delay_s: Floats) -> Floats:
        """QoE at the horizon with a token every 1/`tok_s` from `delay_s` on."""
        idle_s = np.minimum(delay_s, horizon_s)
        area, read = self._read(idle_s, 0.0, self.unread_tokens)
        rest_s = horizon_s - idle_s
        left = np.maximum(self.unread_tokens - read, 0.0)
        more, _ = self._read(rest_s, tok_s, left)
        return self._quality(horizon_s, area + more + read * rest_s)

    def waiting(self, horizon_s: float) -> Floats:
        """QoE at the horizon without another token."""
        area, _ = self._read(np.full_like(self.rate_tok_s, horizon_s), 0.0, self.unread_tokens)
        return self._quality(horizon_s, area)

    def stalled(self, horizon_s: float, delay_s: float) -> Floats:
        """By how much the QoE at the horizon falls when nobody gets a token for `delay_s`."""
        dry_s = np.maximum(delay_s - self.unread_tokens / self.rate_tok_s, 0.0)
        return dry_s * self.rate_tok_s * horizon_s / self._ideal_area(horizon_s)

    def _read(self, span_s: Floats, tok_s: float, ready_tokens: Floats) -> tuple[Floats, Floats]:
        """Area and tokens read in a span that begins with `ready_tokens` and brings `tok_s` more a second."""
        rate = self.rate_tok_s
        if tok_s > 0.0:
            # Never faster than it comes, once what was ready is used up.
            slow = np.minimum(rate, tok_s)
            until_dry_s = np.where(rate > tok_s, ready_tokens / np.maximum(rate - tok_s, 1e-9), np.inf)
        else:
            slow, until_dry_s = np.zeros_like(rate), ready_tokens / rate
        fast_s = np.minimum(until_dry_s, span_s)
        slow_s = span_s - fast_s
        area = rate * fast_s**2 / 2 + rate * fast_s * slow_s + slow * slow_s**2 / 2
        return area, rate * fast_s + slow * slow_s

    def _quality(self, horizon_s: float, area_to_come: Floats) -> Floats:
        whole = self.read_area + self.read_tokens * horizon_s + area_to_come
        return np.minimum(whole / self._ideal_area(horizon_s), 1.0)

    def _ideal_area(self, horizon_s: float) -> Floats:
        span_s = np.maximum(self.due_s + horizon_s, 1e-3)
        area: Floats = self.rate_tok_s * span_s**2 / 2
        return area


class ReadingBook:
    """Remembers what each request's reader has read, from one decision to the next."""

    def __init__(self, ttft_target_s: float) -> None:
        self._ttft_target_s = ttft_target_s
        self._past: dict[str, tuple[float, float, float]] = {}  # time, tokens read, area

    def readers(self, view: View, visible_tokens: Floats) -> Readers:
        """The present columns. Rows without a reader count as one that reads a token a second (Andes has none)."""
        now_s = view.engine.now_s
        rate = np.where(np.isnan(view.rate_tok_s), 1.0, view.rate_tok_s)
        unread = np.where(np.isnan(view.rate_tok_s), 0.0, np.fmax(view.unread_tokens, 0.0))
        read = np.maximum(visible_tokens - unread, 0.0)
        area = np.zeros(len(view))
        past, self._past = self._past, {}
        due_s = now_s - view.arrival_s - self._ttft_target_s
        for row, rid in enumerate(view.rids):
            tokens = float(read[row])
            # Read evenly since the decision before; by who is new here, since it was due.
            before_s, before_tokens, before_area = past.get(rid, (now_s - max(float(due_s[row]), 0.0), 0.0, 0.0))
            area[row] = before_area + (before_tokens + tokens) / 2 * (now_s - before_s)
            self._past[rid] = (now_s, tokens, float(area[row]))
        return Readers(rate, unread, read, area, due_s)
