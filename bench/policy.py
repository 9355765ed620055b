"""How long one `plan` takes, by number of requests and variant: python bench/policy.py [--json]

Three situations: `calm` (everybody runs), `queue` (first tokens wait, nobody can make room)
and `swaps` (first tokens wait, paused streams run dry, runners have runway: a group swap is due). One core; the view
is there already, as in the engine, which keeps its columns up to date anyway.
"""

import argparse
import gc
import json
import statistics
import time

import numpy as np

from tokenflow.policy.carry import Carry
from tokenflow.policy.costs import Costs
from tokenflow.policy.plan import Plan
from tokenflow.policy.planner import plan
from tokenflow.policy.states import RequestState, Variant
from tokenflow.policy.tunables import Tunables
from tokenflow.policy.view import EngineView, RequestView, View

SIZES = (64, 1_000, 10_000)
SITUATIONS = ("calm", "queue", "swaps")
_CONTEXT_TOKENS = 1_500
_KV_BYTES = 131_072.0  # Llama-3-8B in bf16


def situation(kind: str, count: int, seed: int = 1) -> View:
    """A server with a quarter of `count` as slots (at most 256), a tenth waiting, the others paused; or all running."""
    draw = np.random.default_rng(seed)
    slots = min(max(count // 4, 1), 256)
    running = slots if kind != "calm" else count
    waiting = 0 if kind == "calm" else max(count // 10, 1)
    rows = []
    for i in range(count):
        if i < running:
            runway_s = float(draw.uniform(0.0, 0.2) if kind == "queue" else draw.uniform(1.0, 12.0))
            rows.append(_row(i, RequestState.RUNNING, runway_s, draw))
        elif i < running + waiting:
            rows.append(_row(i, RequestState.WAITING, 0.0, draw))
        else:
            rows.append(_row(i, RequestState.PREEMPTED, float(draw.uniform(0.0, 12.0)), draw))
    resident = running * _CONTEXT_TOKENS
    engine = EngineView(
        now_s=1_000.0, slot_count=running if kind == "calm" else slots, slots_free=0, kv_total_tokens=2 * resident,
        kv_free_tokens=resident // 2, kv_bytes_per_token=_KV_BYTES, host_total_tokens=10**8, host_free_tokens=10**8,
        step_s=0.03, capacity_tok_s=1e9,
        costs=Costs(d2h_bytes_s=4e10, h2d_bytes_s=4e10, prefill_s_per_token=2e-5, schedule_s=0.04),
    )  # fmt: skip
    return View.from_rows(rows, engine, Carry(now_s=999.97))


def _row(i: int, state: RequestState, runway_s: float, draw: np.random.Generator) -> RequestView:
    rate = float(draw.choice([5.0, 10.0, 20.0]))
    context = float(draw.integers(200, 2 * _CONTEXT_TOKENS))
    held = state is not RequestState.WAITING
    on_device = context if state is RequestState.RUNNING else 0.0
    return RequestView(
        rid=f"r{i:06d}", state=state, arrival_s=float(draw.uniform(990.0, 1_000.0)), since_s=995.0, rate_tok_s=rate,
        unread_tokens=rate * runway_s, is_started=held, run_tokens=100.0, is_first_run=False, context_tokens=context,
        remaining_tokens=1_000.0, length_tokens=4_000.0, kv_device_tokens=on_device,
        kv_host_tokens=context if held else 0.0, kv_both_tokens=on_device * 0.9,
    )  # fmt: skip


def measure(view: View, tunables: Tunables, budget_s: float) -> tuple[dict[str, float], Plan]:
    """Median, p99 and best of many single calls, in microseconds."""
    made = plan(view, tunables)
    times: list[int] = []
    end_s = time.perf_counter() + budget_s
    gc.disable()
    while time.perf_counter() < end_s or len(times) < 20:
        start = time.perf_counter_ns()
        plan(view, tunables)
        times.append(time.perf_counter_ns() - start)
    gc.enable()
    micros = sorted(value / 1e3 for value in times)
    return {
        "median_us": round(statistics.median(micros), 1),
        "p99_us": round(micros[int(len(micros) * 0.99)], 1),
        "best_us": round(micros[0], 1),
        "call_count": float(len(micros)),
    }, made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=float, default=1.0, help="time spent on each figure")
    parser.add_argument("--variant", action="append", choices=[str(v) for v in Variant])
    arguments = parser.parse_args()
    rows = []
    for name in arguments.variant or [str(v) for v in Variant]:
        for kind in SITUATIONS:
            for count in SIZES:
                figures, made = measure(situation(kind, count), Tunables(variant=Variant(name)), arguments.seconds)
                row = {"variant": name, "situation": kind, "request_count": count, **figures}
                row["pause_count"], row["start_count"] = len(made.pauses), len(made.starts)
                rows.append(row)
                if not arguments.json:
                    print(
                        f"{name:10} {kind:6} {count:7,} requests  median {row['median_us']:9,.1f} µs"
                        f"  p99 {row['p99_us']:9,.1f} µs  pauses {len(made.pauses):4}  starts {len(made.starts):4}",
                        flush=True,
                    )
    if arguments.json:
        print(json.dumps({"schema": "tokenflow.bench-policy/1", "rows": rows}))


if __name__ == "__main__":
    main()
