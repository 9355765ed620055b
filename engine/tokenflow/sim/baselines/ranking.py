"""Runs the best of a ranking and moves everybody else out of the way: what preemptive baselines have in common."""

import math

from tokenflow.policy.plan import Action, Cause, Plan
from tokenflow.policy.view import PREEMPTED, RUNNING, View
from tokenflow.sim.baselines.draft import Draft, Rows
from tokenflow.sim.scheduler import Look

HEADROOM_TOKENS = 16  # for each of those who run, before anybody else is let in: FastServe keeps a block for each


def serve_ranked(view: View, rank: Rows) -> Plan:
    """`rank` holds all rows, best first. As many of the best as slots and memory hold run; of the others, KV stays on
    the device as far as it has room, the best first, and the rest of it is swapped to the host.

    Rows that are being prefilled or loaded hold their places whatever their rank: they cannot be taken back.
    """
    draft = Draft(view, uses_host=True)
    chosen = _chosen(draft, rank)
    running = set(draft.running.tolist())
    starts = [row for row in rank.tolist() if row in chosen and view.state[row] <= PREEMPTED]
    leaves = [row for row in rank.tolist()[::-1] if row in running and row not in chosen]
    lacking = sum(map(draft.need_tokens, starts)) + _growth(draft, chosen) - draft.free_tokens
    # Idle copies go first, the worst of them first, then the KV of those who leave.
    for row in rank.tolist()[::-1]:
        if lacking <= 0.0:
            break
        if view.state[row] == PREEMPTED and row not in chosen and view.kv_device_tokens[row] > 0:
            draft.release(row)
            lacking -= draft.pages(view.kv_device_tokens.item(row))
    for row in leaves:
        draft.pause(row, Action.PAUSE_OFFLOAD if lacking > 0.0 else Action.PAUSE_KEEP)
        if lacking > 0.0:
            lacking -= draft.pages(view.kv_device_tokens.item(row))
    for row in starts:
        if draft.fits(row):
            draft.start(row, Cause.SHARE)
    return draft.plan()


def room_check_s(look: Look) -> float:
    """When to look at memory again: with half of the headroom left, so that copies to the host end in time."""
    view = look.view
    count = int((view.state == RUNNING).sum())
    if not count:
        return math.inf
    steps = view.engine.kv_free_tokens / count - HEADROOM_TOKENS / 2
    return look.now_s + max(steps, 1.0) * view.engine.step_s


def _chosen(draft: Draft, rank: Rows) -> set[int]:
    """Who is to hold a slot. The first of the ranking always does, if it fits into the pool at all."""
    view = draft.view
    fixed = set(draft.holding[view.state[draft.holding] != RUNNING].tolist())
    slots = view.engine.slot_count - len(fixed)
    room = view.engine.kv_total_tokens - sum(draft.pages(view.context_tokens.item(row) + 1.0) for row in fixed)
    page = view.engine.page_tokens
    chosen: set[int] = set()
    spare = HEADROOM_TOKENS * draft.running.size
    for row in rank.tolist():
        if slots <= 0:
            break
        if row in fixed:
            continue
        tokens = draft.pages(view.context_tokens.item(row) + 1.0) + page  # one page to grow into
        if tokens <= (room if view.state[row] == RUNNING or not chosen else room - spare):
            chosen.add(row)
            room -= tokens
            slots -= 1
    return chosen


def _growth(draft: Draft, chosen: set[int]) -> float:
    """What is made free ahead for those who run on: copies to the host take their time."""
    each = max(draft.view.engine.page_tokens, HEADROOM_TOKENS)
    return float(sum(1 for row in draft.running.tolist() if row in chosen) * each)
