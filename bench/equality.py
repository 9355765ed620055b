"""Streams that are paused and resumed in a burst say what each says alone, on the engine's own device.

    python bench/equality.py [--requests 10] [--tokens 60] [--slots 4] [--output FILE.jsonl]

Ends with 1 if a text differs or nobody was paused. BENCH_DEVICE=cuda runs it on a GPU.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from engine_process import EngineProcess, device, running_engine
from engine_runs import COMMON, flush_cache

from tokenflow.link import Tune
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import StreamPlan, Workload, plan_streams
from tokenflow.loadgen.run import LoadRun
from tokenflow.policy.states import Mode

# On a GPU the usual kernels give other results in another batch, and a text could differ for reasons of its own.
SAME_IN_ANY_BATCH = ("--attention-backend", "triton", "--enable-deterministic-inference")
TOKENS_A_SLOT = 80  # less than a stream needs in the end: KV is short as well as slots


def shortage(slots: int) -> tuple[str, ...]:
    tokens = str(slots * TOKENS_A_SLOT)
    return ("--max-running-requests", str(slots), "--max-total-tokens", tokens, "--context-length", tokens)


def set_mode(engine: EngineProcess, mode: Mode) -> None:
    reply = engine.command(Tune(changes={"mode": mode.value}))
    assert reply.error_code is None, reply.error_message


def texts(engine: EngineProcess, plans: list[StreamPlan]) -> list[str]:
    endpoint = Endpoint(url=engine.url, model="demo", extra_body={"ignore_eos": True}, idle_timeout_s=300.0)
    result = asyncio.run(LoadRun(endpoint, plans, keep_text=True).execute())
    assert all(stream.is_complete for stream in result.streams), [stream.error for stream in result.streams]
    return [stream.text or "" for stream in result.streams]


def alone(plan: StreamPlan) -> StreamPlan:
    return StreamPlan(
        index=0, arrival_s=0.0, prompt=plan.prompt, rate_tok_s=plan.rate_tok_s, max_tokens=plan.max_tokens
    )


def compare(engine: EngineProcess, requests: int, tokens: int) -> dict[str, object]:
    workload = Workload(
        request_count=requests,
        arrivals=f"burst:{requests}",
        rates="2",
        output_tokens=f"fixed:{tokens}",
        seed=1,
    )
    plans = plan_streams(workload)
    set_mode(engine, Mode.OFF)
    expected = [texts(engine, [alone(plan)])[0] for plan in plans]
    flush_cache(engine.url)
    set_mode(engine, Mode.ENFORCE)
    begin_s = time.monotonic()
    found = texts(engine, plans)
    duration_s = time.monotonic() - begin_s
    last = engine.telemetry()
    return {
        "part": "equality",
        "device": device(),
        "requests": requests,
        "equal": sum(a == b for a, b in zip(found, expected, strict=True)),
        "preemption_count": last.quality.preemption_total,
        "d2h_bytes": last.transfers.d2h.total_bytes,
        "h2d_bytes": last.transfers.h2d.total_bytes,
        "fault_count": last.fault_count,
        "burst_s": duration_s,
        "capacity_tok_s": last.capacity.capacity_tok_s,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--output", type=Path, help="a JSON line")
    options = parser.parse_args()
    kernels = SAME_IN_ANY_BATCH if device() == "cuda" else ()
    with running_engine(*COMMON, *shortage(options.slots), *kernels) as engine:
        line = compare(engine, options.requests, options.tokens)
    print(json.dumps(line))
    if options.output:
        options.output.write_text(json.dumps(line) + "\n")
    return 0 if line["equal"] == options.requests and line["preemption_count"] and not line["fault_count"] else 1


if __name__ == "__main__":
    sys.exit(main())
