"""`tfctl bench` and SGLang's own `bench_serving` on stock SGLang, with the same requests."""

import json

import pytest
from bench_serving import bench_serving, skip_where_it_cannot_run
from stock_engine import StockEngine

TOKENS = 24
PROMPTS = [f"Tell me about the sea and {thing}." for thing in ("ships", "whales", "salt", "storms", "tides", "ports")]


def test_both_measure_the_same_on_stock_sglang(own_engine, tmp_path):
    skip_where_it_cannot_run()
    prompts, requests = tmp_path / "prompts.txt", tmp_path / "requests.jsonl"
    prompts.write_text("".join(f"{prompt}\n" for prompt in PROMPTS))
    stock = StockEngine(tmp_path / "stock.log")
    try:
        stock.wait_until_serving()
        bench_serving(stock.url, tmp_path, PROMPTS[:2], 4, model="stock")  # the engine's first requests are slow
        stock.forget_prompts()
        other = bench_serving(stock.url, tmp_path, PROMPTS, TOKENS, model="stock")
        stock.forget_prompts()
        document = own_engine.json(
            *("bench", "--url", stock.url, "-n", str(len(PROMPTS)), "--prompts", str(prompts), "--ignore-eos"),
            *("--output-tokens", f"fixed:{TOKENS}", "--requests-out", str(requests), "--acks"),
        )
    finally:
        stock.close()
    [run] = document["runs"]
    assert (run["completed"], run["stream_unackable_count"]) == (len(PROMPTS), len(PROMPTS)), (
        "it gives no tokens to ack"
    )
    assert run["total_output_tokens"] == other["total_output_tokens"] == len(PROMPTS) * TOKENS
    for key in ("mean_ttft_ms", "mean_tpot_ms", "output_throughput"):
        # Wide, since the two runs come one after the other and other work on the machine slows either.
        assert 1 / 3 < run[key] / other[key] < 3, f"{key}: {run[key]} against {other[key]}"

    streams = [json.loads(line) for line in requests.read_text().splitlines()]
    assert sum(stream["token_count"] for stream in streams) == run["total_output_tokens"]
    assert 1e3 * sum(stream["ttft_s"] for stream in streams) / len(streams) == pytest.approx(run["mean_ttft_ms"])
