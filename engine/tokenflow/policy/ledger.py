"""Slots and device pages while a decision is made: what is free, what each start claims, what each pause frees."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenflow.policy.tunables import Tunables
from tokenflow.policy.view import LOADING, PREEMPTED, PREFILLING, WAITING, View

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

GROWTH_TOKENS = 8  # room that each running stream keeps, so that a start does not fill the pool a step later
_MOST_GROWTH_TOKENS = 256
_GROWTH_STEPS = 2
_MOST_TOKENS = 1e12


class Claims(NamedTuple):
    """What each start takes: pages out of the ledger, and its own unwritten copy out of what others could have got."""

    tokens: list[float]
    own_tokens: list[float]


@dataclass(slots=True)
class Ledger:
    """`free_tokens` counts what the host also has of paused streams as free: it is dropped when it is needed.

    `unwritten_tokens` are paused streams' device copies that would have to be written first, as far as the host has
    room; they come before anybody running has to leave.
    """

    slots: int
    free_tokens: float
    unwritten_tokens: float
    host_free_tokens: float
    claimed_tokens: float = 0.0
    promised_host_tokens: float = 0.0  # of the host's room: what victims write as they leave
    is_idle: bool = False  # nobody holds a slot: then copies are given up too, or nobody might ever start

    def take(self, tokens: float, own_tokens: float) -> None:
        """A start takes a slot and its pages. Only where `can_take`."""
        assert self.slots > 0
        self.slots -= 1
        self.claimed_tokens += tokens
        lent_tokens = max(own_tokens - self.unwritten_tokens, 0.0)
        self.unwritten_tokens = max(self.unwritten_tokens - own_tokens, 0.0)
        self.free_tokens -= tokens + lent_tokens
        if self.free_tokens < 0.0:
            assert self.unwritten_tokens + self.free_tokens > -1e-6
            self.unwritten_tokens += self.free_tokens
            self.host_free_tokens = max(self.host_free_tokens + self.free_tokens, 0.0)
            self.free_tokens = 0.0

    def promise_host(self, tokens: float) -> None:
        """A victim will write this much to the host."""
        self.host_free_tokens -= tokens
        self.promised_host_tokens += tokens

    def lacks_tokens(self, tokens: float, own_tokens: float, written_tokens: float = 0.0) -> float:
        """Pages that are lacking for a start, in tokens; 0 if there are enough.

        What an earlier start was lent of this one's own copy has to be found again. `written_tokens` of the host's
        room are taken by those who leave for it.
        """
        lacking = tokens + max(own_tokens - self.unwritten_tokens, 0.0) - self.free_tokens
        if lacking <= 0.0:
            return 0.0
        writable = self.unwritten_tokens - own_tokens
        if not self.is_idle:
            writable = min(writable, self.host_free_tokens - written_tokens)
        return max(lacking - writable, 0.0) if writable > 0.0 else lacking

    def can_take(self, tokens: float, own_tokens: float) -> bool:
        return self.slots > 0 and self.lacks_tokens(tokens, own_tokens) <= 0.0


def open_ledger(view: View, running_count: int) -> Ledger:
    """The state before anything is decided.

    Taken off what is free: what prefilling and loading rows have yet to allocate, and a little growth for each
    running stream. May be negative (more KV than memory): then nothing starts.
    """
    engine, state = view.engine, view.state
    free = _finite(engine.kv_free_tokens) - running_count * headroom_tokens(view)
    unwritten = 0.0
    host_free = max(_finite(engine.host_free_tokens), 0.0)
    paused = (state == PREEMPTED).nonzero()[0]
    if paused.size:
        free += float(droppable_tokens(view, paused).sum())
        unwritten = float(unwritten_tokens(view, paused).sum())
    arriving = ((state == PREFILLING) | (state == LOADING)).nonzero()[0]
    if arriving.size:
        wanted = pages(view, sane_tokens(view.context_tokens[arriving]) + 1.0)
        free -= float(sane_tokens(wanted - view.kv_device_tokens[arriving]).sum())
    is_idle = running_count == 0 and not arriving.size
    return Ledger(max(int(engine.slots_free), 0), free, unwritten, host_free, is_idle=is_idle)


def headroom_tokens(view: View) -> int:
    """Room that is kept for each running stream to grow."""
    return max(view.engine.page_tokens, GROWTH_TOKENS)


def claims(view: View, tunables: Tunables, rows: Rows) -> Claims:
    """Pages, in tokens, that each waiting or paused row takes out of the ledger's free ones if it starts.

    Its whole context and the growth of its next run, less what it holds and the ledger does not count as free.
    """
    engine = view.engine
    is_first = view.state[rows] == WAITING
    step_s = max(engine.step_s, 1e-4)
    run_tokens = min(max(math.ceil(tunables.quantum_s / step_s), GROWTH_TOKENS), _MOST_GROWTH_TOKENS)
    growth = np.where(is_first, float(min(tunables.first_run_tokens, _MOST_GROWTH_TOKENS)), float(run_tokens))
    context = sane_tokens(view.context_tokens[rows])
    # Near the pool's size the growth is what is left, or a request that fits could never start.
    growth = np.fmax(np.fmin(np.fmin(growth, view.remaining_tokens[rows]), engine.kv_total_tokens - context), 1.0)
    own = np.where(is_first, 0.0, unwritten_tokens(view, rows))
    held = np.where(is_first, view.kv_device_tokens[rows], own + view.kv_shared_tokens[rows])
    tokens = np.fmax(pages(view, context + growth) - np.fmax(held, 0.0), 0.0)
    return Claims(tokens.tolist(), own.tolist())


def growth_tokens(view: View, running: Rows) -> float:
    """Pages, in tokens, that running rows allocate within the step in flight and the next one."""
    page = view.engine.page_tokens
    if page <= 1:
        return float(_GROWTH_STEPS * running.size)
    context = sane_tokens(view.context_tokens[running])
    return float((np.ceil((context + _GROWTH_STEPS) / page) - np.ceil(context / page)).sum()) * page


def droppable_tokens(view: View, rows: Rows) -> Floats:
    """Device tokens of paused rows that the host has too and nobody else uses."""
    return sane_tokens(view.kv_both_tokens[rows] - view.kv_shared_tokens[rows])


def unwritten_tokens(view: View, rows: Rows) -> Floats:
    """Device tokens that the host does not have and nobody else uses."""
    both_or_shared = np.fmax(view.kv_both_tokens[rows], view.kv_shared_tokens[rows])
    return sane_tokens(view.kv_device_tokens[rows] - both_or_shared)


def freed_tokens(view: View, rows: Rows) -> Floats:
    """Device tokens that come free when running rows leave the device."""
    return sane_tokens(view.kv_device_tokens[rows] - view.kv_shared_tokens[rows])


def sane_tokens(tokens: Floats) -> Floats:
    """Not below 0, not NaN, and small enough to become a whole number."""
    return np.fmin(np.fmax(tokens, 0.0), _MOST_TOKENS)


def pages(view: View, tokens: Floats) -> Floats:
    """Tokens rounded up to whole pages."""
    page = view.engine.page_tokens
    return tokens if page <= 1 else np.ceil(tokens / page) * page


def _finite(value: float) -> float:
    return float(value) if math.isfinite(value) else 0.0
