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

    Rows that are being prefilled or loaded hold their places whatever their rank, and so does whoever the host has no
    room for. Rows that are not in `rank` are left where they are.
    """
    draft = Draft(view, uses_host=True)
    chosen = _chosen(draft, rank)
    running = set(draft.running.tolist())
    worst_first = rank.tolist()[::-1]
    starts = [row for row in rank.tolist() if row in chosen and view.state[row] <= PREEMPTED]
    growth = _growth(draft, chosen)
    needs = list(map(draft.need_tokens, starts))
    must = growth if draft.holding.size else sum(needs[:1])
    lacking = _release(draft, worst_first, chosen, must, sum(needs) + growth)
    for row in worst_first:
        if row not in running or row in chosen:
            continue
        if lacking <= 0.0:
            draft.pause(row, Action.PAUSE_KEEP)
        elif draft.host_takes(row):
            draft.pause(row, Action.PAUSE_OFFLOAD)
            lacking -= draft.pages(view.kv_device_tokens.item(row))
    for row in starts:
        if draft.fits(row, growth):
            draft.start(row, Cause.SHARE)
    return draft.plan()


def _release(draft: Draft, worst_first: list[int], chosen: set[int], must: float, wanted: float) -> float:
    """Idle copies on the device make room for `wanted` tokens, the worst of them first. What then is still lacking.

    They are written to the host before. Where it is full they are given up, but only for what `must` have room: the
    growth of those who run, or the first start where nobody does.
    """
    view = draft.view
    lacking, must_lacking = wanted - draft.free_tokens, must - draft.free_tokens
    for row in worst_first:
        if lacking <= 0.0:
            break
        held = draft.pages(view.kv_device_tokens.item(row))
        if view.state[row] != PREEMPTED or row in chosen or not held:
            continue
        if draft.host_takes(row) or must_lacking > 0.0:
            draft.release(row)
            lacking -= held
            must_lacking -= held
    return lacking


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
        tokens = draft.pages(view.context_tokens.item(row) + 1.0)
        if chosen or fixed:
            tokens += page  # one to grow into; whoever is alone may have the last one
        if tokens <= (room if view.state[row] == RUNNING or not chosen else room - spare):
            chosen.add(row)
            room -= tokens
            slots -= 1
    return chosen


def _growth(draft: Draft, chosen: set[int]) -> float:
    """What is made free ahead for those who run on: copies to the host take their time."""
    each = max(draft.view.engine.page_tokens, HEADROOM_TOKENS)
    return float(sum(1 for row in draft.running.tolist() if row in chosen) * each)
