"""Short ways to write the rows and views of policy tests. The clock stands at NOW_S."""

from dataclasses import replace

from tokenflow.policy.carry import Carry
from tokenflow.policy.costs import Costs
from tokenflow.policy.planner import plan
from tokenflow.policy.states import RequestState
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.view import EngineView, RequestView, View

NOW_S = 1_000.0
FAST_TOK_S = (
    60.0  # a reader whom the engine, with its steps of 0.02 s, cannot get ahead of: no step is made for it first
)
COSTS = Costs(
    evict_fixed_s=0.0, load_fixed_s=0.0, d2h_bytes_s=1e4, h2d_bytes_s=1e4, schedule_s=0.02, prefill_fixed_s=0.0,
    prefill_s_per_token=1e-3,
)  # fmt: skip
ENGINE = EngineView(
    NOW_S, 4, 0, 10_000, 5_000, kv_bytes_per_token=10.0, host_total_tokens=10_000, host_free_tokens=5_000, costs=COSTS,
    step_s=0.02,
)  # fmt: skip


def engine_with(costs=None, **values):
    return replace(ENGINE, costs=replace(COSTS, **(costs or {})), **values)


def waiting(rid, **values):
    defaults = {"arrival_s": NOW_S - 0.5, "rate_tok_s": 6.0, "context_tokens": 100.0}
    return RequestView(rid, **{**defaults, **values})


def running(rid, runway_s=1.0, rate_tok_s=6.0, **values):
    """Has run for 50 s, with KV on the device alone."""
    defaults = {
        "arrival_s": NOW_S - 60.0, "since_s": NOW_S - 50.0, "context_tokens": 100.0, "kv_device_tokens": 100.0,
        "is_started": True, "run_tokens": 100.0, "is_first_run": False, "unread_tokens": runway_s * rate_tok_s,
    }  # fmt: skip
    return RequestView(rid, RequestState.RUNNING, rate_tok_s=rate_tok_s, **{**defaults, **values})


def paused(rid, runway_s=1.0, rate_tok_s=6.0, **values):
    """Was paused 5 s ago, with KV on the host alone."""
    defaults = {
        "arrival_s": NOW_S - 60.0, "since_s": NOW_S - 5.0, "context_tokens": 100.0, "kv_host_tokens": 100.0,
        "is_started": True, "is_first_run": False, "unread_tokens": runway_s * rate_tok_s,
    }  # fmt: skip
    return RequestView(rid, RequestState.PREEMPTED, rate_tok_s=rate_tok_s, **{**defaults, **values})


def view_of(*rows, engine=None, carry=None):
    return View.from_rows(rows, engine or ENGINE, carry or Carry(now_s=NOW_S - 0.02))


def decide(*rows, engine=None, carry=None, **tunables):
    return plan(view_of(*rows, engine=engine, carry=carry), Tunables(**tunables))


def swaps_of(made):
    """(who left, who came) of each swap, and None for whoever came into a free place."""
    rids = {d.row: d.rid for d in made.decisions}
    pauses = [(d.rid, rids.get(d.partner_row)) for d in made.pauses]
    return pauses + [(None, d.rid) for d in made.starts if d.partner_row is None]
