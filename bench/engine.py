"""Stock SGLang against TokenFlow on the real engine: one engine, the same bursts, modes `off` and `enforce` in turn.

Each pair sends the same seeded burst twice, in changing order, with SGLang's cache emptied before each; the figures
are medians of the pairs' ratios with their range. Two shortages: too few slots, and too little KV.

    python bench/engine.py [--pairs 5] [--shortage slots|kv] [--rate 2] [--output FILE.jsonl]
"""

import argparse
import asyncio
import json
import statistics
import time
import urllib.error
import urllib.request
from pathlib import Path

from engine_process import EngineProcess, running_engine

from tokenflow.link import SetMode
from tokenflow.loadgen.endpoint import Endpoint
from tokenflow.loadgen.plan import Workload, plan_streams
from tokenflow.loadgen.run import LoadRun
from tokenflow.policy.states import Mode
from tokenflow.quality.record import StreamRecord
from tokenflow.quality.summary import summarise

REQUESTS, OUTPUT_TOKENS = 24, 120
HICACHE = ("--enable-hierarchical-cache", "--hicache-io-backend", "direct", "--hicache-mem-layout", "layer_first")
COMMON = (*HICACHE, "--hicache-ratio", "4", "--chunked-prefill-size", "512", "--sleep-on-idle")
SHORTAGES = {
    "slots": (*COMMON, "--max-running-requests", "8", "--max-total-tokens", "8192"),
    "kv": (*COMMON, "--max-running-requests", "24", "--max-total-tokens", "1500", "--context-length", "1500"),
}


def flush_cache(url: str) -> None:
    request = urllib.request.Request(f"{url}/flush_cache", b"", method="POST")
    for _ in range(300):
        try:
            urllib.request.urlopen(request, timeout=60).close()
            return
        except urllib.error.HTTPError:  # refused while anything is under way
            time.sleep(0.2)
    raise TimeoutError("the engine did not become idle")


def measure(engine: EngineProcess, mode: Mode, rate_tok_s: float, seed: int) -> dict[str, float]:
    """One burst in one mode."""
    flush_cache(engine.url)
    engine.command(SetMode(mode=mode))
    workload = Workload(
        request_count=REQUESTS,
        arrivals=f"burst:{REQUESTS}",
        rates=f"{rate_tok_s:g}",
        min_output_tokens=OUTPUT_TOKENS,
        max_output_tokens=OUTPUT_TOKENS,
        seed=seed,
    )
    endpoint = Endpoint(url=engine.url, model="demo", extra_body={"ignore_eos": True}, idle_timeout_s=300.0)
    result = asyncio.run(LoadRun(endpoint, plan_streams(workload)).execute())
    assert all(stream.is_complete for stream in result.streams), [stream.error for stream in result.streams]
    records = [
        StreamRecord.of(stream.sent_s or 0.0, stream.token_times_s, rate_tok_s=stream.rate_tok_s)
        for stream in result.streams
    ]
    summary = summarise(records)
    return {
        "ttft_mean_s": summary.ttft_mean_s or 0.0,
        "ttft_p99_s": summary.ttft_p99_s or 0.0,
        "raw_tok_s": summary.raw_tok_s,
        "effective_tok_s": summary.effective_tok_s,
        "qoe_mean": summary.qoe_mean or 0.0,
        "stall_share": summary.stall_s_total * rate_tok_s / (REQUESTS * OUTPUT_TOKENS),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--shortage", choices=sorted(SHORTAGES), action="append")
    parser.add_argument("--rate", type=float, default=2.0, help="tokens per second that each reader reads")
    parser.add_argument("--output", type=Path, help="a JSON line per burst")
    options = parser.parse_args()
    for shortage in options.shortage or list(SHORTAGES):
        with running_engine(*SHORTAGES[shortage]) as engine:
            measure(engine, Mode.OFF, options.rate, seed=0)  # warm
            pairs = []
            for number in range(options.pairs):
                order = (Mode.OFF, Mode.ENFORCE) if number % 2 == 0 else (Mode.ENFORCE, Mode.OFF)
                pair = {mode: measure(engine, mode, options.rate, seed=number + 1) for mode in order}
                pairs.append(pair)
                if options.output:
                    with options.output.open("a") as file:
                        for mode, figures in pair.items():
                            line = {"shortage": shortage, "mode": mode, "seed": number + 1, **figures}
                            file.write(json.dumps(line) + "\n")
            last = engine.telemetry()
            demand_ratio = REQUESTS * options.rate / (last.capacity.capacity_tok_s or float("nan"))
        report(shortage, pairs, demand_ratio)


def report(shortage: str, pairs: list[dict[Mode, dict[str, float]]], demand_ratio: float) -> None:
    print(f"{shortage}: {REQUESTS} streams at once, {OUTPUT_TOKENS} tokens each, demand {demand_ratio:.2f} of capacity")
    print(f"  {'':18}{'stock':>10}{'TokenFlow':>11}   ratio (median of {len(pairs)} pairs, range)")
    for name in pairs[0][Mode.OFF]:
        stock = statistics.median(pair[Mode.OFF][name] for pair in pairs)
        ours = statistics.median(pair[Mode.ENFORCE][name] for pair in pairs)
        line = f"  {name:18}{stock:10.3f}{ours:11.3f}"
        if all(pair[Mode.OFF][name] > 0 for pair in pairs):
            ratios = [pair[Mode.ENFORCE][name] / pair[Mode.OFF][name] for pair in pairs]
            line += f"   {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        print(line, flush=True)


if __name__ == "__main__":
    main()
