"""One workload on one engine under one scheduler: what `bench/engine.py` is made of."""

import asyncio
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

import msgspec
from engine_process import ADMIN_KEY, EngineProcess

from tokenflow.link import Tune
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import Workload, plan_streams
from tokenflow.loadgen.run import LoadRun
from tokenflow.policy.states import Mode, Variant
from tokenflow.quality.record import StreamRecord
from tokenflow.quality.summary import summarise

OUTPUT_TOKENS = 120
HICACHE = ("--enable-hierarchical-cache", "--hicache-io-backend", "direct", "--hicache-mem-layout", "layer_first")
COMMON = (*HICACHE, "--hicache-ratio", "4", "--chunked-prefill-size", "512", "--sleep-on-idle")
PRIORITY = (
    *("--enable-priority-scheduling", "--default-priority-value", "0"),
    *("--priority-scheduling-preemption-threshold", "0"),  # preemption comes with it unless disabled
)
# Slots, or KV tokens, for about a third of 24 streams.
SHORTAGES = {
    "slots": (*COMMON, "--max-running-requests", "8", "--max-total-tokens", "8192"),
    "kv": (*COMMON, "--max-running-requests", "24", "--max-total-tokens", "1200", "--context-length", "1200"),
}


@dataclass(frozen=True)
class System:
    """A scheduler to measure. `engine_args` other than none need an engine of their own."""

    name: str
    tunables: dict[str, Any]
    engine_args: tuple[str, ...] = ()
    has_priorities: bool = False  # later arrivals get a higher priority: what stock preemption needs to act


SYSTEMS = {
    system.name: system
    for system in (
        System("stock", {"mode": Mode.OFF.value}),
        System("tokenflow", {"mode": Mode.ENFORCE.value, "variant": Variant.TOKENFLOW.value}),
        System("paper", {"mode": Mode.ENFORCE.value, "variant": Variant.PAPER.value}),
        System("guide", {"mode": Mode.ENFORCE.value, "variant": Variant.GUIDE.value}),
        System("priority", {"mode": Mode.OFF.value}, PRIORITY, has_priorities=True),
        System("mixed", {"mode": Mode.ENFORCE.value, "variant": Variant.TOKENFLOW.value}, ("--enable-mixed-chunk",)),
    )
}


@dataclass(frozen=True)
class Load:
    """What is sent. `arrivals` in the notation of tfctl."""

    name: str
    request_count: int
    arrivals: str
    rate_tok_s: float
    extra_body: dict[str, Any] = field(default_factory=dict)


def flush_cache(url: str) -> None:
    """Empties SGLang's cache; it refuses while anything is under way."""
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    request = urllib.request.Request(f"{url}/flush_cache", b"", headers, method="POST")
    for _ in range(300):
        try:
            urllib.request.urlopen(request, timeout=60).close()
            return
        except urllib.error.HTTPError:
            time.sleep(0.2)
    raise TimeoutError("the engine did not become idle")


def measure(engine: EngineProcess, system: System, load: Load, seed: int) -> dict[str, float]:
    """One run. Every stream must come back whole, or the figures would mean nothing."""
    flush_cache(engine.url)
    reply = engine.command(Tune(changes=system.tunables))
    assert reply.error_code is None, reply.error_message
    before = engine.telemetry()
    workload = Workload(
        request_count=load.request_count,
        arrivals=load.arrivals,
        rates=f"{load.rate_tok_s:g}",
        output_tokens=f"fixed:{OUTPUT_TOKENS}",
        seed=seed,
    )
    plans = plan_streams(workload)
    if system.has_priorities:
        plans = [msgspec.structs.replace(plan, extra_body={"priority": plan.index}) for plan in plans]
    endpoint = Endpoint(url=engine.url, model="demo", extra_body={"ignore_eos": True}, idle_timeout_s=300.0)
    result = asyncio.run(LoadRun(endpoint, plans).execute())
    assert all(stream.is_complete for stream in result.streams), [stream.error for stream in result.streams]
    records = [
        StreamRecord.of(stream.sent_s or 0.0, stream.token_times_s, rate_tok_s=stream.rate_tok_s)
        for stream in result.streams
    ]
    summary = summarise(records)
    after = engine.telemetry()
    streamed_s = sum(record.token_count for record in records) / load.rate_tok_s
    return {
        "ttft_mean_s": summary.ttft_mean_s or 0.0,
        "ttft_p99_s": summary.ttft_p99_s or 0.0,
        "raw_tok_s": summary.raw_tok_s,
        "effective_tok_s": summary.effective_tok_s,
        "qoe_mean": summary.qoe_mean or 0.0,
        "stall_s": summary.stall_s_total,
        "stall_ratio": summary.stall_s_total / streamed_s,
        "loaded_bytes": float(after.transfers.h2d.total_bytes - before.transfers.h2d.total_bytes),
        "written_bytes": float(after.transfers.d2h.total_bytes - before.transfers.d2h.total_bytes),
    }
