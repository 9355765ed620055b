"""Looks for schedulers, made by hand: rows with prompt and output, and an engine of a few figures."""

import numpy as np

from tokenflow.policy.costs import Costs
from tokenflow.policy.states import RequestState
from tokenflow.policy.view import EngineView, RequestView, View
from tokenflow.sim.performance import LinearModel, Link
from tokenflow.sim.scheduler import Look

S = RequestState
GPU = LinearModel(
    gpu="toy",
    model="toy",
    source="made up",
    kv_bytes_per_token=1000.0,
    link=Link(d2h_bytes_s=1e9, h2d_bytes_s=1e9),
    kv_token_count=10_000,
    step_fixed_s=0.010,
    stream_s=0.0005,
    kv_token_s=1e-7,
    new_token_s=1e-4,
)
COSTS = Costs(prefill_fixed_s=0.01, prefill_s_per_token=1e-4, d2h_bytes_s=1e9, h2d_bytes_s=1e9)


def row(rid, state=S.WAITING, *, prompt=100, made=0, left=100, device=None, host=0.0, first_run=True, **fields):
    """A request with `made` of `made + left` tokens. KV is on the device while it runs, unless told otherwise."""
    context = prompt + max(made - 1, 0)
    kv_device = float(context if state is S.RUNNING else 0) if device is None else float(device)
    request = RequestView(
        rid,
        state,
        context_tokens=context,
        remaining_tokens=left,
        length_tokens=made + left,
        kv_device_tokens=kv_device,
        kv_host_tokens=host,
        kv_both_tokens=min(kv_device, host),
        is_first_run=first_run,
        **({"rate_tok_s": 10.0, "is_started": made > 0} | fields),
    )
    return request, prompt, made


def look(rows, *, now_s=10.0, slots=4, kv=10_000, host=100_000, gpu=GPU, costs=COSTS, pauses=()):
    """What a scheduler is shown. Free slots and pages follow from the rows."""
    requests = [request for request, _, _ in rows]
    holders = sum(request.state in (S.RUNNING, S.PREFILLING, S.LOADING) for request in requests)
    on_device = sum(request.kv_device_tokens for request in requests)
    engine = EngineView(
        now_s=now_s,
        slot_count=slots,
        slots_free=slots - holders,
        kv_total_tokens=kv,
        kv_free_tokens=kv - on_device,
        kv_bytes_per_token=1000.0,
        host_total_tokens=host,
        host_free_tokens=host,
        step_s=0.02,
        costs=costs,
    )
    return Look(
        view=View.from_rows(requests, engine),
        prompt_tokens=np.array([prompt for _, prompt, _ in rows], np.int64),
        made_tokens=np.array([made for _, _, made in rows], np.int64),
        pause_count=np.array([dict(pauses).get(request.rid, 0) for request in requests], np.int64),
        performance=gpu,
    )


def starts(plan):
    return [decision.rid for decision in plan.starts]


def pauses(plan):
    return [(decision.rid, decision.action) for decision in plan.pauses]
